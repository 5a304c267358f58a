"""Running a program from outside: interpreter, isolation, limits, and the record of every way to die."""
