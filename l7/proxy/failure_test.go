package proxy

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
)

// Errors of this host are not those of a backend, which would lose all its requests for them.
func TestErrorsOfConnecting(t *testing.T) {
	for _, c := range []struct {
		err        error
		connecting bool
		want       *failure
	}{
		{unix.EMFILE, true, errLocal},
		{unix.ENFILE, true, errLocal},
		{unix.EADDRNOTAVAIL, true, errLocal},
		{unix.ENOBUFS, true, errLocal},
		{unix.ENOMEM, true, errLocal},
		{unix.EAGAIN, true, errLocal},
		{unix.EPERM, true, errLocal},
		{fmt.Errorf("connect: %w", unix.EADDRNOTAVAIL), true, errLocal},
		{unix.ECONNRESET, true, errRefused},
		{unix.EPIPE, true, errRefused},
		{unix.ECONNREFUSED, true, errRefused},
		{unix.EHOSTDOWN, true, errConnect},
		{unix.EHOSTUNREACH, true, errConnect},
		{unix.ETIMEDOUT, true, errConnectTimeout},
		{errors.New("tls: bad certificate"), true, errTLS},
		{link.ErrCut, true, errTLS},
		{unix.ECONNRESET, false, errTerminated},
		{io.EOF, false, errTerminated},
	} {
		if got := failureOf(c.err, c.connecting); got != c.want {
			t.Errorf("%v, connecting %v: %s", c.err, c.connecting, got.name)
		}
	}
	if errLocal.class != pool.Canceled || errLocal.status != 503 || errRefused.class != pool.Refused {
		t.Errorf("classes %v %v", errLocal.class, errRefused.class)
	}
}
