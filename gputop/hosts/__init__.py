"""Several hosts on one screen: an OpenSSH child each, and a line of the overview each."""
