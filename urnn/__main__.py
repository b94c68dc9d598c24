"""``python -m urnn``."""

from urnn.cli import main

if __name__ == "__main__":
    main()
