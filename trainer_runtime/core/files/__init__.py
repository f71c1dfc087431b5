"""What reads or writes a disk: durable files, manifests, folder readers."""
