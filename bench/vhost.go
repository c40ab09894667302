package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

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
		"The row of the second queue needs six CPUs: the program has CPU 1, or 1 and 2, and the guest 3, or 3 and 4.",
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
			return vhostContestant(e, name, absent, onePair, socket, args, argv)
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
		Measures: []harness.Measure{measure("split", ""), measure("packed", ",packed_vq=1"), vhostQueues(e, absent, socket)},
		Close: func() error {
			return errors.Join(os.RemoveAll(dir), os.RemoveAll("/var/run/dpdk/"+testpmdPrefix()), os.RemoveAll("/var/run/dpdk/"+testpmdPrefix()+"-guest"))
		},
	}, nil
}

// vhostCPUs places a program and its guest.
type vhostCPUs struct {
	program []int // one for each queue
	guest   []int // that forward, one for each queue
	prompt  int   // of the guest
}

// onePair shares two CPUs. The others are for machines that have a CPU for each thread: CPU 0 is left to the kernel and the prompt.
var (
	onePair  = vhostCPUs{program: []int{1}, guest: []int{0}, prompt: 1}
	oneQueue = vhostCPUs{program: []int{1}, guest: []int{3}}
	twoPairs = vhostCPUs{program: []int{1, 2}, guest: []int{3, 4}}
)

// vhostQueues asks what a second queue on a second CPU brings.
func vhostQueues(e *harness.Env, absent, socket string) harness.Measure {
	const one, two, need = "1 queue", "2 queues", 6
	if n := runtime.NumCPU(); absent == "" && n < need {
		absent = fmt.Sprintf("%d CPUs, and %d are needed", n, need)
	}
	run := func(name string, at vhostCPUs, args string) harness.Contestant {
		return vhostContestant(e, name, absent, at, socket, args, []string{
			e.Self, "role", "vhost", "-batch", "64", "-loops", strconv.Itoa(len(at.program)), "-cpu", strconv.Itoa(at.program[len(at.program)-1]), socket,
		})
	}
	return harness.Measure{
		Name: "second queue, split ring, 64 B", Unit: "packet", Peer: one,
		Contestants: []harness.Contestant{run(one, oneQueue, ""), run(two, twoPairs, ",queues=2")},
		Gates:       []harness.Gate{gate(two, harness.MetricRate, one, ">=", 1.8)},
	}
}

// vhostContestant runs a contestant, and then the guest that connects to it.
func vhostContestant(e *harness.Env, name, absent string, at vhostCPUs, socket, args string, argv []string) harness.Contestant {
	const part = "program"
	cores, queues := fmt.Sprintf("0@%d", at.prompt), strconv.Itoa(len(at.guest))
	for i, cpu := range at.guest {
		cores += fmt.Sprintf(",%d@%d", i+1, cpu)
	}
	guest := []string{
		e.Self, "role", "testpmd", "--",
		"-v", "--lcores", cores, "--main-lcore", "0", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry",
		"--file-prefix", testpmdPrefix() + "-guest", "--vdev", "net_virtio_user0,queue_size=256,path=" + socket + args,
		"--", "-i", "--total-num-mbufs=8192", "--burst=64", "--forward-mode=flowgen", "--nb-cores=" + queues, "--rxq=" + queues, "--txq=" + queues,
		"--port-topology=loop", "--no-flush-rx",
	}
	return harness.Contestant{Name: name, Absent: absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		w, err := harness.RunParts(ctx, t,
			harness.Part{Name: part, Argv: argv, CPU: at.program[0], Also: at.program[1:]},
			harness.Part{Name: "guest", Argv: guest, CPU: at.guest[0], Also: at.guest[1:]})
		if err != nil {
			return harness.Sample{}, err
		}
		s := w.Sample(part, "packets")
		s.Own, s.Version = s.Parts[part], w.Version[part]
		return s, nil
	}}
}
