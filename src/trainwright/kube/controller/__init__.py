"""What every controller is made of: reflector, store, work queue, event recorder and leader election."""
