"""What a worker says about itself.

metrics         status metrics
logs            logs
"""
