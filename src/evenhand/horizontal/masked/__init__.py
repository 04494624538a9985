"""Only sums: any horizontal solver, with a server that learns of clients' answers nothing but their sum."""
