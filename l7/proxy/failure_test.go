package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
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

// noDescriptors is a loop that can open no connection.
type noDescriptors struct{ transport.Loop }

func (noDescriptors) Dial(netip.AddrPort, transport.Handler) (transport.Conn, error) {
	return nil, unix.EMFILE
}

// A gateway without descriptors answers so, and does not blame the backend.
func TestALocalErrorIsNotTheBackends(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	r.do(func() { r.worker.Loop = noDescriptors{r.loop} })
	resp, err := r.client(false).Get("http://" + r.addr)
	must(t, err)
	_ = resp.Body.Close()
	if s := resp.Header.Get("proxy-status"); resp.StatusCode != 503 || !strings.Contains(s, "destination_unavailable") {
		t.Errorf("%d %s", resp.StatusCode, s)
	}
}
