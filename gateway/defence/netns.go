package defence

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaceOfThread opens the network namespace of the calling thread.
func namespaceOfThread() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// inNamespace runs f in a network namespace. The thread is another one where it has to be moved.
func inNamespace(ns *os.File, f func() error) error {
	var want, is unix.Stat_t
	if err := errors.Join(unix.Fstat(int(ns.Fd()), &want), unix.Stat("/proc/self/ns/net", &is)); err != nil {
		return err
	}
	if want.Ino == is.Ino {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
