-- A results folder keeps everything but trained models in one file of these tables, and a pack is such a file,
-- compressed. Every row has a checksum of its other values (`database.checksum`): a row whose checksum does not fit
-- is damaged, and never shown. Works with SQLite 3.34: neither STRICT tables nor the operator ->>. Primary keys come
-- first, since SQLite's integrity_check mistakes other columns for missing.

PRAGMA application_id = 0x666C6970;  -- "flip"
PRAGMA user_version = 6;

-- What rows refer to by its SHA-256: arrays of outcomes (a safetensors file for each outcome), descriptions of machines,
-- the trials of looks, and models in packs.
CREATE TABLE contents (
  digest TEXT NOT NULL PRIMARY KEY CHECK (length(digest) = 64),
  content BLOB NOT NULL CHECK (typeof(content) = 'blob')
) WITHOUT ROWID;

-- The outcomes of trials.
CREATE TABLE results (
  key TEXT NOT NULL PRIMARY KEY CHECK (typeof(key) = 'text'),
  checksum TEXT NOT NULL,
  study TEXT NOT NULL CHECK (study <> '' AND study NOT GLOB '*[^a-z0-9-]*'),
  revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
  source TEXT NOT NULL CHECK (typeof(source) = 'text'),  -- digest of the study's file
  trial TEXT NOT NULL CHECK (typeof(trial) = 'text'),  -- JSON, as are other texts in braces or brackets
  seconds REAL NOT NULL CHECK (typeof(seconds) = 'real' AND seconds >= 0),
  finished TEXT NOT NULL CHECK (datetime(finished) IS NOT NULL),
  attempts INTEGER NOT NULL CHECK (typeof(attempts) = 'integer' AND attempts >= 1),
  outcome TEXT NOT NULL CHECK (typeof(outcome) = 'text'),
  arrays TEXT REFERENCES contents,
  machine TEXT NOT NULL REFERENCES contents
) WITHOUT ROWID;

-- Outcomes from elsewhere of trials whose own result is another.
CREATE TABLE variants (
  key TEXT NOT NULL CHECK (typeof(key) = 'text'),
  checksum TEXT NOT NULL,
  study TEXT NOT NULL CHECK (study <> '' AND study NOT GLOB '*[^a-z0-9-]*'),
  revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
  source TEXT NOT NULL CHECK (typeof(source) = 'text'),  -- digest of the study's file
  trial TEXT NOT NULL CHECK (typeof(trial) = 'text'),
  seconds REAL NOT NULL CHECK (typeof(seconds) = 'real' AND seconds >= 0),
  finished TEXT NOT NULL CHECK (datetime(finished) IS NOT NULL),
  attempts INTEGER NOT NULL CHECK (typeof(attempts) = 'integer' AND attempts >= 1),
  outcome TEXT NOT NULL CHECK (typeof(outcome) = 'text'),
  arrays TEXT REFERENCES contents,
  machine TEXT NOT NULL REFERENCES contents,
  PRIMARY KEY (key, checksum)
) WITHOUT ROWID;

-- Trials that raised an exception, until they are done.
CREATE TABLE failures (
  key TEXT NOT NULL PRIMARY KEY CHECK (typeof(key) = 'text'),
  checksum TEXT NOT NULL,
  study TEXT NOT NULL CHECK (study <> '' AND study NOT GLOB '*[^a-z0-9-]*'),
  revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
  source TEXT NOT NULL CHECK (typeof(source) = 'text'),  -- digest of the study's file
  trial TEXT NOT NULL CHECK (typeof(trial) = 'text'),
  seconds REAL NOT NULL CHECK (typeof(seconds) = 'real' AND seconds >= 0),
  finished TEXT NOT NULL CHECK (datetime(finished) IS NOT NULL),
  attempts INTEGER NOT NULL CHECK (typeof(attempts) = 'integer' AND attempts >= 1),
  traceback TEXT NOT NULL CHECK (typeof(traceback) = 'text')
) WITHOUT ROWID;

-- Judgements of all planned trials. They stay when the trials that they are of are forgotten.
CREATE TABLE looks (
  key TEXT NOT NULL PRIMARY KEY CHECK (typeof(key) = 'text'),
  checksum TEXT NOT NULL,
  study TEXT NOT NULL CHECK (study <> '' AND study NOT GLOB '*[^a-z0-9-]*'),
  scale TEXT NOT NULL CHECK (typeof(scale) = 'text'),
  claim TEXT NOT NULL CHECK (typeof(claim) = 'text'),
  number INTEGER NOT NULL CHECK (typeof(number) = 'integer' AND number >= 1),
  exploratory INTEGER NOT NULL CHECK (exploratory IN (0, 1)),
  error REAL NOT NULL CHECK (typeof(error) = 'real' AND 0 < error AND error < 1),
  declared INTEGER NOT NULL CHECK (typeof(declared) = 'integer' AND declared >= 1),  -- looks that the scale announced
  revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
  trials TEXT NOT NULL REFERENCES contents,  -- {hash of a trial: digest of its outcome}
  drawn TEXT NOT NULL CHECK (typeof(drawn) = 'text'),  -- {setting that only determines the sample: its value}
  limits TEXT NOT NULL CHECK (typeof(limits) = 'text'),  -- [[numbers of the limit] of each part of the judgement]
  limit_by TEXT NOT NULL CHECK (typeof(limit_by) = 'text'),  -- whose limit it is
  judgement TEXT NOT NULL CHECK (typeof(judgement) = 'text'),
  made TEXT NOT NULL CHECK (datetime(made) IS NOT NULL)
) WITHOUT ROWID;

-- The progress of every run, or how it ended.
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  checksum TEXT NOT NULL,
  study TEXT NOT NULL CHECK (study <> '' AND study NOT GLOB '*[^a-z0-9-]*'),
  scale TEXT NOT NULL CHECK (typeof(scale) = 'text'),
  revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
  state TEXT NOT NULL CHECK (typeof(state) = 'text'),
  total INTEGER NOT NULL CHECK (typeof(total) = 'integer' AND total >= 0),
  done INTEGER NOT NULL CHECK (typeof(done) = 'integer' AND done >= 0),
  failed INTEGER NOT NULL CHECK (typeof(failed) = 'integer' AND failed >= 0),
  started TEXT NOT NULL CHECK (datetime(started) IS NOT NULL),
  updated TEXT NOT NULL CHECK (datetime(updated) IS NOT NULL),
  pid INTEGER NOT NULL CHECK (typeof(pid) = 'integer'),
  born TEXT NOT NULL CHECK (typeof(born) = 'text'),
  host TEXT NOT NULL CHECK (typeof(host) = 'text'),
  command TEXT NOT NULL CHECK (typeof(command) = 'text'),
  running TEXT NOT NULL CHECK (typeof(running) = 'text'),
  verdicts TEXT NOT NULL CHECK (typeof(verdicts) = 'text')
);

-- Trained models of a pack; a results folder keeps them as files.
CREATE TABLE models (
  name TEXT NOT NULL PRIMARY KEY CHECK (length(name) = 44 AND name GLOB '*.safetensors' AND substr(name, 1, 32) NOT GLOB '*[^0-9a-f]*'),
  checksum TEXT NOT NULL,
  content TEXT NOT NULL REFERENCES contents
) WITHOUT ROWID;
