"""The strategies of Services, Endpoints and EndpointSlices."""
