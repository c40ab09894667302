package accesslog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/logqueue"
)

// inFile returns a log in use, of JSON to a file.
func inFile(t *testing.T, o Options, old *Log) *Log {
	t.Helper()
	o.Layout, o.Log = inJSON(t).opt.Layout, slog.New(slog.DiscardHandler)
	if o.Buffer == 0 {
		o.Buffer = 1 << 20
	}
	target, err := Open(&o)
	if err != nil {
		t.Fatal(err)
	}
	return Use(o, target, old)
}

// objects returns the lines of a file.
func objects(t *testing.T, path string) (list []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, m)
	}
	return list
}

// Failures and slow requests have a line whatever the sample; of the others each line stands for so many, and the rest is counted.
func TestASampleHasAllFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := inFile(t, Options{Path: path, OneIn: 10, Slow: time.Second}, nil)
	var lines Lines
	always := []Record{
		{Method: "GET", Status: 500}, {Method: "GET", Status: 200, Error: "x"}, {Reason: "syntax", Status: 400}, {Method: "GET"}, {Method: "GET", Status: 200, Began: time.Second},
	}
	const others = 20000
	for i := range others {
		lines.Write(l, 0, &Record{Method: "GET", Status: 200 + i%300, Began: time.Second - 1})
	}
	for i := range always {
		lines.Write(l, 0, &always[i])
	}
	l.Close()
	weights := map[float64]int{}
	for _, m := range objects(t, path) {
		weights[m["weight"].(float64)]++
	}
	if weights[1] != len(always) || weights[1]+weights[10]+int(lines.Skipped()) != others+len(always) {
		t.Errorf("lines by weight %v, skipped %d", weights, lines.Skipped())
	}
	if n := weights[10] * 10; n < others*8/10 || n > others*12/10 { // 9 standard deviations
		t.Errorf("the sample stands for %d requests of %d", n, others)
	}
	if l.Dropped() != 0 {
		t.Errorf("%d dropped", l.Dropped())
	}
}

// Requests that all have a line have no weight, and a reload keeps lines of before.
func TestAReloadGoesOnWithTheQueue(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	var lines Lines
	l := inFile(t, Options{Path: a}, nil)
	lines.Write(l, 0, &full)
	next := inFile(t, Options{Path: b, OneIn: 2}, l)
	for range 20 {
		lines.Write(next, 0, &Record{Status: 500})
	}
	last := inFile(t, Options{Path: b, Buffer: 1 << 16}, next)
	lines.Write(last, 0, &full)
	last.Close()
	total := 0
	for end := time.Now().Add(30 * time.Second); total != 22 && time.Now().Before(end); time.Sleep(time.Millisecond) { // the old queue closes by itself
		total = len(objects(t, b))
		if _, err := os.Stat(a); err == nil {
			total += len(objects(t, a))
		}
	}
	if total != 22 || last.Dropped() != 0 {
		t.Errorf("%d lines, %d dropped", total, last.Dropped())
	}
}

// A file that was renamed is opened again; and one that cannot be stays as it is.
func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log")
	l := inFile(t, Options{Path: path, Rotate: logqueue.Rotation{Size: 1 << 20, Keep: 1}}, nil)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if l.out.file.Rotation() != (logqueue.Rotation{Size: 1 << 20, Keep: 1}) {
		t.Error("the file is not bounded any more")
	}
	new(Lines).Write(l, 0, &full)
	l.Close()
	if n := len(objects(t, path)); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// The lines of a millisecond of the loop have one time, which is read once: two reads of the clock differ. A line of the next one, and of a
// loop whose time is another, has its own.
func TestTheClockIsReadOnceAMillisecond(t *testing.T) {
	var lines Lines
	at := func(of clock.Time) time.Time {
		now := lines.now(of)
		lines.memory.set(now)
		return now
	}
	const begin = clock.Time(5e9)
	before := time.Now()
	first := at(begin)
	if first.Before(before) || first.After(time.Now()) {
		t.Errorf("the time of the first line is %v", first)
	}
	if got := at(begin + 999_999); got != first {
		t.Errorf("the clock was read again: %v, %v", first, got)
	}
	second := at(begin + 1e6)
	if second == first {
		t.Error("the clock was not read for the next millisecond")
	}
	if got := at(begin + 1e6 + 999_999); got != second {
		t.Error("the millisecond is not that from the last read on")
	}
	if got := at(begin); got == second {
		t.Error("the clock was not read for an earlier time")
	}
}
