package node_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
)

// TestDPDKDeviceWithoutRulesIsReportedOnce changes claims on a device that has no rules for them.
func TestDPDKDeviceWithoutRulesIsReportedOnce(t *testing.T) {
	s := newDPDKSite(t)
	var log bytes.Buffer
	var n *node.Node
	must(t, s.middle.Do(func() (err error) {
		n, err = node.Open(node.Config{
			Devices: []node.Device{{Name: "dpdk:net_null0"}}, Loops: 1, Engine: "cpu", Ops: gpukern.OpParse,
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		return err
	}))
	t.Cleanup(func() { must(t, n.Close()) })
	claims := []pmd.Rule{{Addr: netip.MustParseAddr("198.18.0.10"), Proto: 6, PortLo: 80}}
	must(t, n.Add(node.Service{
		Name: "a", Claims: func() []pmd.Rule { return claims },
		Handlers: []stack.Handler{stack.Bridge{}},
	}))
	for i := range byte(3) {
		must(t, n.Update())
		claims = append(claims, pmd.Rule{Addr: netip.AddrFrom4([4]byte{198, 18, 1, i})})
		if d := n.DeviceCounters()[0]; !strings.HasSuffix(d.Negotiated, "rte_flow steers 0 of "+string('1'+i)+" claims") {
			t.Error(d.Negotiated)
		}
	}
	if c := strings.Count(log.String(), "steering in software"); c != 1 || !strings.Contains(log.String(), "function not implemented") {
		t.Errorf("%d lines:\n%s", c, log.String())
	}
}
