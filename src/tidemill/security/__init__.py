"""Who may do what: authentication, authorization, quotas and the audit log, used by all servers."""
