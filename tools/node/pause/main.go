// The process of a pod's sandbox: it holds the namespaces, reaps orphans where it is process 1 of all containers, and
// ends when it is told so.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); process <= 0 && err != syscall.EINTR {
				break
			}
		}
	}
}
