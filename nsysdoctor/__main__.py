"""`python -m nsysdoctor` is the command."""

from __future__ import annotations

from nsysdoctor.cli import main

if __name__ == "__main__":
    main()
