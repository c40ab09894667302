package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test program play the parts with a fault that the tests of processes need.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "fake" {
		os.Exit(playFake(os.Args[2]))
	}
	os.Exit(m.Run())
}

// playFake is a part with a fault.
func playFake(fault string) int {
	in := bufio.NewScanner(os.Stdin)
	say := func(s string) { fmt.Println(s) }
	switch fault {
	case "never ready":
		fmt.Fprintln(os.Stderr, "no such device")
		return 1
	case "garbage":
		say("hello")
		in.Scan()
		return 0
	}
	say(`{"ready":true,"version":"fake 1"}`)
	for n := 1; in.Scan(); n++ {
		if fault == "crash" {
			fmt.Fprintln(os.Stderr, "segmentation fault")
			return 139
		}
		say(fmt.Sprintf(`{"ns":%d,"cpu_ns":%d,"counts":{"packets":%d}}`, n*1000000000, n*500000000, n*1000))
	}
	if fault == "bad end" {
		return 3
	}
	say(`{"final":true,"counts":{"packets":5000}}`)
	return 0
}

func fakePart(t *testing.T, fault string) Part {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Part{Name: "part", Argv: []string{self, "fake", fault}}
}

func TestAPartIsMeasuredBetweenTwoMarks(t *testing.T) {
	timing := Timing{Window: 20 * time.Millisecond}
	w, err := RunParts(context.Background(), timing, fakePart(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	s := w.Sample("part", "packets")
	if s.Units != 1000 || s.Seconds != 1 || s.Parts["part"] != 0.5 || s.CPU < 0.5 || s.CPUs != 1 {
		t.Errorf("sample %+v, want the 1000 packets, the second and its half of CPU time between the marks", s)
	}
	if w.Final["part"].Counts["packets"] != 5000 || w.Version["part"] != "fake 1" {
		t.Errorf("end %+v, version %q", w.Final["part"], w.Version["part"])
	}
}

func TestAFaultyPartIsAnErrorWithItsWords(t *testing.T) {
	for fault, want := range map[string]string{
		"never ready": "no such device",
		"garbage":     `not a line of the protocol: "hello"`,
		"crash":       "segmentation fault",
		"bad end":     "part: it ended early",
	} {
		t.Run(fault, func(t *testing.T) {
			_, err := RunParts(context.Background(), Timing{Window: time.Millisecond}, fakePart(t, fault))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
		})
	}
}

func TestAnInterruptEndsTheParts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := RunParts(ctx, Timing{Window: time.Hour}, fakePart(t, "")) // without the interrupt it outlasts the test
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestTheCPUClockOfAProcessRuns(t *testing.T) {
	a, err := ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for b := a; b == a; { // ends as soon as the clock moves
		if b, err = ProcessCPU(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ProcessCPU(1 << 22); err == nil {
		t.Error("a process that cannot exist has a CPU clock")
	}
}

func TestBusyTicksLeaveIdleAndIOWaitOut(t *testing.T) {
	if n := busyTicks(strings.Fields("1 2 4 1000 2000 8 16 32 0 0")); n != 63 {
		t.Errorf("busyTicks = %d, want 63", n)
	}
}

func TestTheCPUsOfAPartAreThoseThatItUses(t *testing.T) {
	up := []*process{{Part: Part{CPU: 1}}, {Part: Part{CPU: 1, Also: []int{0, 3}}}, {Part: Part{CPU: 3}}}
	if got := fmt.Sprint(cpusOf(up)); got != "[1 0 3]" {
		t.Errorf("CPUs %s", got)
	}
}

func TestTheBooksOfARunAreChecked(t *testing.T) {
	run := func(sent, got, gaps, reordered uint64) error {
		counts := func(n uint64) Mark {
			return Mark{NS: int64(n), Counts: map[string]uint64{"packets": n, "gaps": gaps, "reordered": reordered}}
		}
		w := &Window{
			First: map[string]Mark{"to": counts(0)}, Last: map[string]Mark{"to": counts(got)},
			Final: map[string]Mark{"from": counts(sent), "to": counts(got)},
		}
		_, err := w.Delivered("from", "own", "to")
		return err
	}
	for name, c := range map[string]struct {
		sent, got, gaps, reordered uint64
		want                       string
	}{
		"all arrived":                {10, 10, 0, 0, ""},
		"some lost, some at the end": {10, 6, 3, 0, ""},
		"more than were sent":        {10, 11, 0, 0, "only 10 sent"},
		"nothing arrived":            {10, 0, 0, 0, "nothing arrived"},
		"gaps beyond the losses":     {10, 9, 2, 0, "sequence numbers"},
		"gaps filled later":          {10, 9, 2, 1, ""},
	} {
		err := run(c.sent, c.got, c.gaps, c.reordered)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
