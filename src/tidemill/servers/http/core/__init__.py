"""What the HTTP server decides without IO: sessions, cookies, form tokens, and the rights of each route."""
