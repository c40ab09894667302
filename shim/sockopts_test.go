package shim

import (
	"flag"
	"fmt"
	"os"
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
		if !slices.Contains(known, row) {
			t.Errorf("the page does not have %q (-update-sockopts writes it)", row)
		}
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
