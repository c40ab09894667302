package defence

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaceOfThread opens the network namespace of the calling thread.
func namespaceOfThread() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// inNamespace runs f in a network namespace. The thread is a new one where the present one is elsewhere: it ends with its
// goroutine, since it cannot go back. The namespace of the process says nothing: it is that of its first thread.
func inNamespace(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		moved, err := enter(ns)
		if !moved {
			defer runtime.UnlockOSThread()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread to ns and reports whether it was elsewhere. One that is there already needs no right for it.
func enter(ns *os.File) (moved bool, err error) {
	var want, is unix.Stat_t
	if err := errors.Join(unix.Fstat(int(ns.Fd()), &want), unix.Stat("/proc/thread-self/ns/net", &is)); err != nil {
		return false, err
	}
	if want.Dev == is.Dev && want.Ino == is.Ino {
		return false, nil
	}
	return true, unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}
