"""Tools that every room may use and that know no room: files, money, intervals, packed pairs, numbers in words."""
