package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/capture"
)

func TestAlertsOfTheFirstCopyAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eve.json")
	lines := strings.Join([]string{
		`{"pcap_cnt":7,"event_type":"alert"}`,
		`{"pcap_cnt":8,"event_type":"alert"}`,
		`{"pcap_cnt":0,"event_type":"alert"}`, // at the end of a flow
		`{"event_type":"alert"}`,
		`{"pcap_cnt":1,"event_type":"anomaly"}`,
		`{"pcap_cnt":9,"event_type":"alert"}`,
	}, "\n")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	total, first, err := countAlerts(path, 8)
	if err != nil || total != 5 || first != 2 {
		t.Errorf("%d alerts, %d of the first 8 packets, %v; want 5 and 2", total, first, err)
	}
}

func TestTheStartOfSuricatasEngineIsSeen(t *testing.T) {
	const notice = "Notice: suricata: This is Suricata\nNotice: threads: Threads created -> W: 2 FM: 1 FR: 1   Engine started.\nNotice: pcap: read 1 file\n"
	at, used, found := awaitEngine(strings.NewReader(notice), os.Getpid())
	if !found || at.IsZero() || used < 0 {
		t.Errorf("at %v, %v used, found %v", at, used, found)
	}
	if _, _, found := awaitEngine(strings.NewReader("Error: no rules\n"), os.Getpid()); found {
		t.Error("an engine that did not start was seen")
	}
}

func TestCapturesAreRepeatedAnHourApart(t *testing.T) {
	dir := t.TempDir()
	one, three := filepath.Join(dir, "one.pcap"), filepath.Join(dir, "three.pcap")
	w, err := capture.Create(one, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	const second = 1e9
	for i, at := range []int64{100 * second, 160 * second} {
		if err := w.Write(&capture.Record{Data: make([]byte, 60+i), Len: 60 + i, Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := role.RepeatCapture(three, one, 3); n != 2 || err != nil {
		t.Fatalf("%d packets in a copy, %v", n, err)
	}
	var times, lengths []int64
	err = role.EachRecord(three, func(rec *capture.Record) error {
		times, lengths = append(times, rec.Time/second), append(lengths, int64(len(rec.Data)))
		return nil
	})
	if err != nil || len(times) != 6 || times[2] != 100+60+3600 || times[5] != 160+2*3660 || lengths[4] != 60 || lengths[5] != 61 {
		t.Errorf("records at %v s of %v bytes, %v", times, lengths, err)
	}
}
