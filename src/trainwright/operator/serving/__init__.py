"""What the operator serves: metrics, health and admission webhooks."""
