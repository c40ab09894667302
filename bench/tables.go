package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gpukern/lpm"
)

// tables compares the tables of the engine with those of DPDK.
var tables = harness.Suite{
	Name:  "tables",
	Title: "Rules and routes",
	About: []string{
		"One core, tables and questions in memory, 256 questions a call (packet.BatchSize) on either side. Rules have " +
			"the shape of access lists in use, after the seeds of ClassBench; nine flows in ten lie inside of a rule. " +
			"Routes have the lengths of full tables; every address lies inside of a route, each as likely as another.",
		"All contestants answer every question once before the run and compare with what the file says; one that " +
			"disagrees does not run. The other shapes of rules are firewalls and Linux chains after the seeds of ClassBench, " +
			"the firewall of a site, all pairs of prefix lengths at random addresses (masks), and all pairs of prefix " +
			"lengths around some hosts (nested). rte_acl runs its AVX-512 form by 32 flows, rte_fib its scalar or AVX-512 form, " +
			"whichever is faster there; both get transparent huge pages.",
	},
	Open: openTableSuite,
}

// How many questions: those of rules fit the second-level cache, those of routes do not.
const (
	tableFlows = 1 << 16
	tableAddrs = 1 << 20
)

const dpdk = "DPDK"

func openTableSuite(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := tableBench{e: e, acl: e.BuildC("rte_acl", "libdpdk"), fib: e.BuildC("rte_fib", "libdpdk")}
	measures, err := b.measures(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for _, shape := range []string{"fw", "ipc", "site", "masks", "nested"} {
		for _, n := range []int{100, 1000, 10000} {
			m, err := b.rules(dir, shape, n, fmt.Sprintf("ACL, %d rules, %s", n, shape))
			if err != nil {
				return nil, errors.Join(err, os.RemoveAll(dir))
			}
			measures = append(measures, m)
		}
	}
	return &harness.Bench{Measures: measures, Close: func() error { return os.RemoveAll(dir) }}, nil
}

type tableBench struct {
	e        *harness.Env
	acl, fib harness.Peer
}

func (b tableBench) measures(dir string) ([]harness.Measure, error) {
	var all []harness.Measure
	for _, n := range []int{100, 1000, 10000} {
		m, err := b.rules(dir, "acl", n, fmt.Sprintf("ACL, %d rules", n))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	for _, r := range []struct {
		family, n int
		make      func(*rand.Rand, int) []lpm.Route
	}{{4, 1_000_000, role.Internet4}, {6, 200_000, role.Internet6}} {
		path := filepath.Join(dir, fmt.Sprint("routes-", r.family))
		routes := r.make(rand.New(rand.NewPCG(uint64(r.n), 13)), r.n)
		if err := role.WriteRoutes(path, r.family, routes, tableAddrs); err != nil {
			return nil, err
		}
		all = append(all, b.measure(fmt.Sprintf("LPM, %d routes of IPv%d", r.n, r.family), "routes", path, b.fib, 1/1.5))
	}
	return all, nil
}

// rules compares a list of n rules of a shape.
func (b tableBench) rules(dir, shape string, n int, name string) (harness.Measure, error) {
	path := filepath.Join(dir, fmt.Sprintf("rules-%s-%d", shape, n))
	if err := role.WriteRules(path, shape, n, tableFlows); err != nil {
		return harness.Measure{}, err
	}
	return b.measure(name, "rules", path, b.acl, 0.6), nil
}

// measure compares one table; bound is the least ratio to the peer that was promised.
func (b tableBench) measure(name, as, path string, peer harness.Peer, bound float64) harness.Measure {
	return harness.Measure{
		Name: name, Unit: "packet", Peer: dpdk,
		Contestants: []harness.Contestant{
			harness.OnCore(ours, "", "packets", b.e.Self, "role", "tables", "-as", as, path),
			harness.OnCore(dpdk, peer.Absent, "packets", peer.Path, path),
		},
		Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, dpdk, ">=", bound)},
	}
}
