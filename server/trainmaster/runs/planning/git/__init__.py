"""git without a repository's configuration: what may act is written here, nothing else does.

A repository is found and its HEAD read by us (`repository`). git runs with a folder of ours as its
GIT_DIR (`isolated`), which borrows the objects and a copy of the index. What changed since the
commit is shown from the files that travel, which git is given (`changes`).
"""
