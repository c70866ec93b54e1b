"""Tables of ClickHouse, on servers or in the embedded engine chDB."""
