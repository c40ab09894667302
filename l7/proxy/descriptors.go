package proxy

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/pool"
)

// dials bounds how many connections a worker tries to open at each look at a queue. It is 0, no bound, until there is no file
// descriptor for one. From then on it is 1 after a failure, and one more after each success: requests that wait neither all ask in
// vain every queueCheck, nor go on one by one after a burst.
type dials int

// dialsMost is how many at a time end the bound.
const dialsMost = 256

// most returns how many connections may be tried.
func (d dials) most() int {
	if d == 0 {
		return math.MaxInt
	}
	return int(d)
}

// short reports whether the last attempt has failed.
func (d dials) short() bool { return d == 1 }

func (d *dials) failed() { *d = 1 }

func (d *dials) succeeded() {
	if *d == 0 {
		return
	}
	if *d++; *d > dialsMost {
		*d = 0
	}
}

// notOpened ends what ConnOpened has counted where there is no connection, and returns the error for those that need it. The lack of a
// descriptor is that of a place at the backend: both end when another connection does, and requests wait for it as long. It does not
// look at the queues at once, as connClosed does: nothing has become free, and a loop would ask without end.
func (w *Worker) notOpened(b *pool.Backend, err error) error {
	if !lacksDescriptor(err) {
		w.connClosed(b)
		return err
	}
	w.dials.failed()
	b.ConnClosed()
	return errBackendFull
}

// lacksDescriptor reports whether an error is the lack of a descriptor, of the process or of the host.
func lacksDescriptor(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
