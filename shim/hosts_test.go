package shim

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostsByName: gethostbyname and its relatives ask the node, as getaddrinfo does.
func TestHostsByName(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "hosts")
	b := newBed(t, func(c *Config) {
		c.Lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
			four, six := netip.MustParseAddr("198.18.0.9"), netip.MustParseAddr("2001:db8::9")
			switch name {
			case "host.example":
				return []netip.Addr{four, six, netip.MustParseAddr("198.18.0.10")}, nil
			case "four.example":
				return []netip.Addr{four}, nil
			case "none.example":
				return nil, &net.DNSError{IsNotFound: true}
			}
			return nil, errors.New("no answer")
		}
	})
	want := `by name: host.example, family 2, 4 bytes 198.18.0.9 198.18.0.10
IPv6: host.example, family 10, 16 bytes 2001:db8::9
no such: error 1
later: error 2
only IPv4: error 4
numeric: 198.18.0.7, family 2, 4 bytes 198.18.0.7
result 0 reentrant: host.example, family 2, 4 bytes 198.18.0.9 198.18.0.10
result 1 short: error -1
result 0 no such, reentrant: error 1`
	if got := strings.Join(oracle(t, "hosts", "", "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestOtherResolversAreReported: names of addresses, and records, are libc's to ask for.
func TestOtherResolversAreReported(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "hosts")
	b := newBed(t, nil)
	for _, part := range []string{"reverse", "record"} {
		var says strings.Builder
		cmd := exec.Command(filepath.Join(compiled.dir, "hosts"), part)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
		cmd.Stderr = &says
		if err := cmd.Run(); err != nil {
			t.Fatal(part, err)
		}
		before, after, _ := strings.Cut(says.String(), "now\n")
		if part == "record" {
			before, after = "", before
		}
		if strings.Count(after, "may leave the stack") != 1 || before != "" {
			t.Errorf("%s: %q", part, says.String())
		}
	}
}
