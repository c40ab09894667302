package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/bench/harness"
	pmddpdk "github.com/millrace/millrace/pmd/dpdk"
)

// dpdkSuite compares package pmd/dpdk with DPDK's own forwarder on the same virtual devices.
var dpdkSuite = harness.Suite{
	Name:  "dpdk",
	Title: "DPDK's drivers from Go",
	About: []string{
		"dpdk-testpmd is DPDK's forwarder in C. On net_null, which makes and drops packets of 64 bytes, both forward between " +
			"two devices on CPU 1, on pages of 4 KiB, and Millrace's also on transparent huge pages as it is used: what is measured " +
			"is the path between driver and program. testpmd takes bursts of 64, Millrace 64 and 256 (packet.BatchSize). " +
			"io passes packets on; MAC swap touches each, in Go.",
		"On a veth pair a fast source on CPU 0 sends, the contestant on CPU 1 exchanges the link addresses and sends back. " +
			"millrace there is its own AF_XDP driver; the others use DPDK's af_xdp device.",
	},
	Open: openDPDKSuite,
}

const (
	overDPDK = "millrace, DPDK"
)

func openDPDKSuite(e *harness.Env) (*harness.Bench, error) {
	p, dir, closeAll, err := newPacketBench(e)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(dir); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	if os.Getenv(pmddpdk.ShimVariable) == "" {
		os.Setenv(pmddpdk.ShimVariable, filepath.Join(e.Root, "bin"))
	}
	absent, peer := "", ""
	if _, err := pmddpdk.Version(); err != nil {
		absent = err.Error()
	}
	if _, err := exec.LookPath(testpmdProgram); err != nil {
		peer = "no " + testpmdProgram + ": apt-get install dpdk-dev"
	}
	null := func(name, op string, least float64) harness.Measure {
		forwarder := func(name string, flags ...string) harness.Contestant {
			argv := append([]string{e.Self, "role", "dpdk", "-op", op}, flags...)
			return harness.OnCore(name, absent, "packets", append(argv, "net_null0", "net_null1")...)
		}
		return harness.Measure{
			Name: name, Unit: "packet", Peer: testpmd,
			Contestants: []harness.Contestant{
				forwarder(overDPDK, "-as", "small", "-batch", "64"),
				forwarder(overDPDK+" 256", "-as", "small", "-batch", bigBatch),
				forwarder(overDPDK+" 256, huge pages", "-batch", bigBatch),
				harness.OnCore(testpmd, peer, "packets", append([]string{e.Self, "role", "testpmd", "--"}, testpmdArgs(op, 2, "net_null0", "net_null1")...)...),
			},
			Gates: []harness.Gate{gate(overDPDK+" 256", harness.MetricPerCPU, testpmd, ">=", least)},
		}
	}
	return &harness.Bench{
		Measures: []harness.Measure{
			null("net_null, io", "io", 0.90),
			null("net_null, MAC swap", "macswap", 0.85),
			p.forwardDPDK(absent, peer),
		},
		Close: func() error { return errors.Join(closeAll(), os.RemoveAll("/var/run/dpdk/"+testpmdPrefix())) },
	}, nil
}

// testpmdPrefix names the folder in which EAL leaves files of dpdk-testpmd.
func testpmdPrefix() string { return "millrace-testpmd-" + strconv.Itoa(os.Getpid()) }

const testpmdProgram = "dpdk-testpmd"

// testpmdArgs are arguments of dpdk-testpmd: forwarding on CPU 1, the prompt on CPU 0.
func testpmdArgs(op string, ports int, devices ...string) []string {
	args := []string{"-v", "-l", "0,1", "--main-lcore", "0", "--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix", testpmdPrefix()}
	for _, d := range devices {
		args = append(args, "--vdev", d)
	}
	topology := "paired"
	if ports == 1 {
		topology = "loop"
	}
	return append(args, "--", "-i", "--total-num-mbufs=16384", "--burst=64", "--forward-mode="+op, "--nb-cores=1", "--port-topology="+topology, "--no-flush-rx")
}

// forwardDPDK is a measure of programs that send back what a fast source sends.
func (p *packetBench) forwardDPDK(absent, peer string) harness.Measure {
	const size = 64
	device := "net_af_xdp0,iface=" + devName
	forwarder := func(name, absent string, argv []string) harness.Contestant {
		return p.forwarder(name, absent, size, argv)
	}
	return harness.Measure{
		Name: "af_xdp, forward 64 B", Unit: "packet", Peer: testpmd,
		Contestants: []harness.Contestant{
			forwarder(overDPDK, absent, []string{p.e.Self, "role", "dpdk", "-op", "macswap", "-batch", "64", device}),
			forwarder(testpmd, peer, append([]string{p.e.Self, "role", "testpmd", "--"}, testpmdArgs("macswap", 1, device)...)),
			forwarder(ours, "", p.self("forward", size, "-batch", bigBatch)),
		},
		Gates: []harness.Gate{
			gate(overDPDK, harness.MetricPerCPU, testpmd, ">=", 0.95),
			gate(ours, harness.MetricPerCPU, testpmd, ">=", 0.97),
		},
	}
}
