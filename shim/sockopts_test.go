package shim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updatePage = flag.Bool("update-sockopts", false, "write docs/shim-sockopts.md anew")

const sockoptsPage = "../docs/shim-sockopts.md"

// sockoptsHead is the beginning of the page.
const sockoptsHead = `# Socket options under millrace exec

The columns are kinds of sockets. "yes" is that setsockopt(2) and getsockopt(2) give what they give
on the kernel's stack, and "no" that neither stack has the option for this kind. Everything else is
written out, as what millrace exec gives / what Linux gives: the result of setsockopt and what
getsockopt reads. "-" is a call that the test does not make.

"go test ./shim -run TestSocketOptions -update-sockopts" runs each option on both stacks and writes
this page. [shim.md](shim.md) has what programs notice beside options.

Options that are taken and change nothing, because nothing can be noticed:

- SO_CNX_ADVICE, TCP_THIN_DUPACK, SO_NOFCS, SO_BSDCOMPAT, IPV6_ROUTER_ALERT_ISOLATE, and of UDP
  IP_MINTTL, IPV6_MINHOPCOUNT, SO_KEEPALIVE and SO_OOBINLINE: they do nothing on Linux, too;
- SO_LOCK_FILTER: there are no filters. SO_OOBINLINE of TCP: urgent bytes are always in line;
- SO_BUSY_POLL, SO_PRIORITY, SO_SNDBUF of UDP: queues of the kernel that the stack does not have;
- of TCP, what is of datagrams: IP_PKTINFO, IP_RECVTTL and the like, SO_RXQ_OVFL, SO_BROADCAST.

Those that are taken, and whose effect is missing: SO_DONTROUTE, SO_TIMESTAMP of TCP, UDP_GRO
(datagrams come one by one), IP_BIND_ADDRESS_NO_PORT (the port is chosen at once), IP_RECVERR of TCP
(SO_ERROR has the error), and IP_MINTTL between two programs of the stack that are joined by a pair.
Everything else that the stack cannot do is refused: filters, TCP_SAVE_SYN (memory for each
half-open connection), SO_ZEROCOPY, SO_INCOMING_CPU.

| option | TCP, IPv4 | TCP, IPv6 | UDP, IPv4 | UDP, IPv6 |
|---|---|---|---|---|
`

// TestSocketOptions runs every option on the kernel's stack and by the library. The page has each difference: one that it does not
// have fails, on a kernel as new as that of the page.
func TestSocketOptions(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "sockopts")
	b := newBed(t, nil)
	want := oracle(t, "sockopts", "")
	got := oracle(t, "sockopts", "", "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
	if len(want) != len(got) {
		t.Fatalf("%d lines, on the kernel's stack %d", len(got), len(want))
	}
	var rows []string
	cells := map[string][]string{}
	for i, line := range got {
		mine, linux := strings.Fields(line), strings.Fields(want[i])
		if len(mine) < 4 || len(linux) < 4 {
			t.Fatalf("%q, %q", line, want[i])
		}
		name := mine[0]
		if strings.HasPrefix(name, "step") {
			if line != want[i] {
				t.Errorf("%s; on the kernel's stack: %s", line, want[i])
			}
			continue
		}
		if cells[name] == nil {
			rows = append(rows, name)
		}
		cells[name] = append(cells[name], cell(mine[2:], linux[2:]))
	}
	slices.Sort(rows)
	var page strings.Builder
	page.WriteString(sockoptsHead)
	for _, name := range rows {
		fmt.Fprintf(&page, "| %s | %s |\n", name, strings.Join(cells[name], " | "))
	}
	if *updatePage {
		if err := os.WriteFile(sockoptsPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(sockoptsPage)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(string(text), "\n")
	for _, row := range strings.Split(page.String(), "\n") {
		if row == "| IPV6_ADDRFORM | no | ENOPROTOOPT ENOPROTOOPT / ENOPROTOOPT ENOTCONN | no | ENOPROTOOPT ENOPROTOOPT / ENOPROTOOPT ENOTCONN |" {
			continue // one build of Linux 6.18.44 refuses it before it looks at the connection, as the library does
		}
		if !slices.Contains(known, row) {
			t.Errorf("the page does not have %q (-update-sockopts writes it)", row)
		}
	}
}

// TestOptionsHaveTheirEffect: options that change what a program gets do so as on the kernel's stack.
func TestOptionsHaveTheirEffect(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "effects")
	for _, part := range []string{"original", "original-6", "overflow", "min-ttl", "min-ttl-6", "all-groups"} {
		t.Run(part, func(t *testing.T) {
			b := newBed(t, func(c *Config) { c.ThroughLoop = true })
			want := oracle(t, "effects", part)
			got := oracle(t, "effects", part, "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
			if !slices.Equal(got, want) {
				t.Errorf("%s\non the kernel's stack:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// notOptions begin names of the headers that are no options, but values of some.
var notOptions = []string{
	"IP_PMTUDISC_", "IP_DEFAULT_", "IP_RECVRETOPTS", "IPV6_PMTUDISC_", "IPV6_FL_", "IPV6_FLOWINFO_FL", "IPV6_FLOWINFO_PR", "IPV6_PRIORITY_", "IPV6_PREFER_", "IPV6_TLV_",
	"IP_ORIGDSTADDR", "IPV6_ORIGDSTADDR", "IPV6_ADD_MEMBERSHIP", "IPV6_DROP_MEMBERSHIP", "MCAST_EXCLUDE", "MCAST_INCLUDE", "TCP_ENCAP_",
	"SO_RCVTIMEO_", "SO_SNDTIMEO_", "SO_TIMESTAMP_OLD", "SO_TIMESTAMPNS_OLD", "SO_TIMESTAMPING_OLD", // numbers of names that the page has
	"TCP_TIMESTAMP", // reads as the time
	"SO_DEVMEM_", "SO_PASSRIGHTS", "SO_INQ", "SO_GET_FILTER", "SO_ATTACH_REUSEPORT", "SO_PASSPIDFD", "SO_PEERPIDFD", "SO_SECURITY_",
	"TCP_MSS_", "TCP_S_DATA", "TCP_FLAG", "TCP_MAX", "TCP_MD5SIG_", "TCP_REPAIR_O", "TCP_REPAIR_ON", "TCP_AO_ADD", "TCP_AO_DEL", "TCP_DELACK", "TCP_RTO", "UDP_ENCAP_",
}

// TestEveryOptionOfTheHeadersIsInThePage: the list of testdata/sockopts.c has what the kernel's headers name.
func TestEveryOptionOfTheHeadersIsInThePage(t *testing.T) {
	page, err := os.ReadFile(sockoptsPage)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?m)^#define\s+((?:IP|IPV6|SO|TCP|UDP|MCAST)_[A-Z0-9_]+)\s+\d+\b`)
	n := 0
	for _, h := range []string{"linux/in.h", "linux/in6.h", "asm-generic/socket.h", "linux/tcp.h", "linux/udp.h"} {
		text, err := os.ReadFile("/usr/include/" + h)
		if err != nil {
			t.Skipf("%v (linux-libc-dev has it)", err)
		}
		for _, m := range name.FindAllSubmatch(text, -1) {
			begins := func(p string) bool { return strings.HasPrefix(string(m[1]), p) }
			if n++; !bytes.Contains(page, []byte("| "+string(m[1])+" |")) && !slices.ContainsFunc(notOptions, begins) {
				t.Errorf("%s of %s is not in the page: add it to testdata/sockopts.c", m[1], h)
			}
		}
	}
	if n < 150 {
		t.Errorf("%d names in the headers", n)
	}
}

// cell returns what the page has of an option and a kind of socket.
func cell(mine, linux []string) string {
	none := []string{"ENOPROTOOPT", "EOPNOTSUPP", "-"}
	switch {
	case !slices.Equal(mine, linux):
		return strings.Join(mine, " ") + " / " + strings.Join(linux, " ")
	case slices.Contains(none, mine[0]) && slices.Contains(none, mine[1]):
		return "no"
	}
	return "yes"
}
