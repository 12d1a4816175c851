"""The control plane's records: workspaces, credentials, and where each dataset stands."""
