package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/l7/topk"
)

func TestTopPrintsBlocksOfRates(t *testing.T) {
	top := &admin.Top{
		Result: topk.Result{
			Seconds: 2, Requests: 300, Failed: 4,
			Routes:  []topk.Entry{{Name: "shop", Requests: 300, Rate: 150, Failed: 4, Bytes: 6000, Mean: 0.0123}},
			Paths:   []topk.Entry{{Name: "a.example/\x1b[31m\u009b" + strings.Repeat("x", 300), Requests: 20, AtMost: 9, Rate: 10}},
			Clients: []topk.Entry{{Name: "192.0.2.1", Requests: 5, Rate: 2.5}},
		},
		Services: []admin.ServiceTop{{Service: "dns", Backend: "d1", Packets: 1000, Opened: 2, Bytes: 64000}},
	}
	var out bytes.Buffer
	if err := (&topFlags{}).print(&console{out: &out}, top); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{
		"150 requests/s, 2.0 failed/s, over 2.0 s\n", "shop", "150", "2.0", "3,000", "12.3", "a.example/?[31m?xxx", "<10", "dns/d1", "1,000", "64,000",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.ContainsAny(got, "\x1b\u009b") || strings.Contains(got, "HOSTS") || strings.Contains(got, strings.Repeat("x", nameWidth)) {
		t.Errorf("%q", got)
	}
	out.Reset()
	if err := (&topFlags{by: []string{"clients"}}).print(&console{out: &out, width: 80}, top); err != nil || strings.Contains(out.String(), "shop") || strings.Contains(out.String(), "dns") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestTopRefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--interval", "1ms"}, {"--interval", "2m"}, {"--rows", "0"}, {"--rows", "9999"}, {"--by", "colour"}, {"extra"}} {
		if code, _, errs := run(append([]string{"gateway", "top"}, args...)...); code != 2 {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
