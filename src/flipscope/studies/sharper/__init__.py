"""Studies of paper 002, a sharper picture of generalization (Lintilhac and Shaikh 2026)."""
