"""Running trials: the driver, this process, a pool of workers, a cluster; what is measured is stored at once."""
