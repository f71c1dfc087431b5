from support.host.container_images import podman, podman_folder  # noqa: F401 - fixtures
