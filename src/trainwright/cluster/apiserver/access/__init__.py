"""Who sends a request and what RBAC allows: users, tokens, rules, the authorizer, reviews, the default roles."""
