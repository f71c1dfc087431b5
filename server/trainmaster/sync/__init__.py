"""What hosts have to say, brought here and folded; changes nothing on any of them."""
