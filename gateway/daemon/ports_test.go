package daemon

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/l4/control"
)

// The warning of short ports names few addresses, however many there are.
func TestTheWarningOfPortsIsBounded(t *testing.T) {
	var b bytes.Buffer
	l := newEventLog(slog.New(slog.NewTextHandler(&b, nil)))
	to := netip.MustParseAddrPort("198.18.2.11:80")
	l.addPorts(make([]control.SNATStatus, 100))
	l.flush(false)
	l.flush(true)
	if n := strings.Count(b.String(), "\n"); n != mostShort || !strings.Contains(b.String(), "addresses=100") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
	b.Reset()
	l.addPorts([]control.SNATStatus{{Address: netip.MustParseAddr("198.18.2.1"), MostUsedBy: &to, UsedPercent: 97}})
	l.flush(false)
	if want := "level=WARN msg=ports snat=198.18.2.1 backend=198.18.2.11:80 used_percent=97 addresses=1"; !strings.Contains(b.String(), want) {
		t.Errorf("logged %s, want %s", b.String(), want)
	}
}
