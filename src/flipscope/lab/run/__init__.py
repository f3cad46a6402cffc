"""Running trials: the driver, this process, a pool of workers, a cluster; each result is stored at once."""
