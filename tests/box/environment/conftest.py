from support.box.container_images import podman, podman_folder  # noqa: F401 - fixtures
