package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
)

// vhostSuite compares package pmd/virtio with DPDK's vhost library.
var vhostSuite = harness.Suite{
	Name:  "vhost",
	Title: "Virtual machines over vhost-user",
	About: []string{
		"A guest sends packets of 64 bytes and takes them back: dpdk-testpmd with net_virtio_user on CPU 0, which makes new packets " +
			"as fast as its rings allow (flowgen). The contestant on CPU 1 sends each packet back, unchanged, through the same socket: " +
			"Millrace's back end, or dpdk-testpmd with net_vhost (io). Both poll, copy each packet twice and have pages of 4 KiB.",
	},
	Open: openVhostSuite,
}

func openVhostSuite(e *harness.Env) (*harness.Bench, error) {
	absent := ""
	if _, err := exec.LookPath(testpmdProgram); err != nil {
		absent = "no " + testpmdProgram + ": apt-get install dpdk-dev"
	}
	dir, err := os.MkdirTemp("", "mrvhost")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	measure := func(ring, args string) harness.Measure {
		run := func(name string, argv ...string) harness.Contestant {
			return vhostContestant(e, name, absent, socket, args, argv)
		}
		return harness.Measure{
			Name: ring + " ring, forward 64 B", Unit: "packet", Peer: testpmd,
			Contestants: []harness.Contestant{
				run(ours, e.Self, "role", "vhost", "-batch", "64", socket),
				run(ours+" 256", e.Self, "role", "vhost", "-batch", bigBatch, socket),
				run(testpmd, append([]string{e.Self, "role", "testpmd", "--"}, testpmdArgs("io", 1, "net_vhost0,iface="+socket+",queues=1")...)...),
			},
			Gates: []harness.Gate{gate(ours, harness.MetricPerCPU, testpmd, ">=", 0.80)},
		}
	}
	return &harness.Bench{
		Measures: []harness.Measure{measure("split", ""), measure("packed", ",packed_vq=1")},
		Close: func() error {
			return errors.Join(os.RemoveAll(dir), os.RemoveAll("/var/run/dpdk/"+testpmdPrefix()), os.RemoveAll("/var/run/dpdk/"+testpmdPrefix()+"-guest"))
		},
	}, nil
}

// vhostContestant runs a contestant, and then the guest that connects to it.
func vhostContestant(e *harness.Env, name, absent, socket, args string, argv []string) harness.Contestant {
	const part = "program"
	guest := []string{
		e.Self, "role", "testpmd", "--",
		"-v", "-l", "1,0", "--main-lcore", "1", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry",
		"--file-prefix", testpmdPrefix() + "-guest", "--vdev", "net_virtio_user0,queue_size=256,path=" + socket + args,
		"--", "-i", "--total-num-mbufs=8192", "--burst=64", "--forward-mode=flowgen", "--nb-cores=1", "--port-topology=loop", "--no-flush-rx",
	}
	return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		w, err := harness.RunParts(ctx, t, harness.Part{Name: part, Argv: argv, CPU: 1}, harness.Part{Name: "guest", Argv: guest, CPU: 0})
		if err != nil {
			return harness.Sample{}, err
		}
		s := w.Sample(part, "packets")
		s.Own, s.Version = s.Parts[part], w.Version[part]
		return s, nil
	}}
}
