package main

import (
	"net"
	"strings"
	"testing"
)

func TestCompletionKnowsInterfacesFilesAndWords(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("no interfaces here:", err)
	}
	name := all[0].Name
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"forward", ""}, name},
		{[]string{"forward", "--driver", ""}, "afpacket"},
		{[]string{"forward", "--mode", ""}, "generic"},
		{[]string{"replay", "--to", ""}, name},
		{[]string{"replay", "--engine", ""}, "cpu"},
		{[]string{"doctor", "--iface", ""}, name},
		{[]string{"gateway", "-c", ""}, "yaml"},
	} {
		_, out, _ := run(append([]string{"__complete"}, tc.args...)...)
		if !strings.Contains("\n"+out, "\n"+tc.want+"\n") {
			t.Errorf("%q: %q is not offered: %q", tc.args, tc.want, out)
		}
	}
	if _, out, _ := run("__complete", "forward", "a", "b", ""); strings.Contains(out, name) {
		t.Errorf("a third interface is offered: %q", out)
	}
}
