"""What wakes the daemon: kernel uevents, inotify, timers."""
