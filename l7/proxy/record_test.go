package proxy

import (
	ctls "crypto/tls"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// A record has the header of its request and the phases, which add up; while recording is off there is none.
func TestRecordsHaveFieldsAndPhases(t *testing.T) {
	r := newMemRig(t, nil)
	r.backend = func(*memtransport.Peer) {}
	var got []Record
	agent := ""
	r.worker.OnRecord(func(rec *Record) {
		got = append(got, *rec)
		for _, f := range rec.Fields {
			if f.Name == "user-agent" {
				agent = f.Value
			}
		}
	})
	c := r.connect(memHTTP1)
	ask := func() {
		c.Write([]byte("GET /x HTTP/1.1\r\nhost: a.test\r\nuser-agent: curl/8\r\n\r\n"))
		r.pass(time.Second)
		b := r.backs[len(r.backs)-1]
		b.Take()
		b.Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"))
		r.pass(2 * time.Second)
		b.Write([]byte("ok"))
		r.run()
	}
	ask()
	r.worker.SetRecording(false)
	ask()
	r.worker.SetRecording(true)
	if len(got) != 1 || agent != "curl/8" {
		t.Fatalf("%d records, %q", len(got), agent)
	}
	rest := got[0].Began - got[0].Waited - got[0].Answered
	if got[0].Waited != 0 || got[0].Answered < time.Second || got[0].Answered > 1100*time.Millisecond || rest < 1900*time.Millisecond {
		t.Errorf("waited %v, answered after %v, then %v", got[0].Waited, got[0].Answered, rest)
	}
	if got[0].TLSVersion != 0 || got[0].CipherSuite != 0 {
		t.Errorf("TLS %x %x", got[0].TLSVersion, got[0].CipherSuite)
	}
}

// The suite that a handshake agreed on is in the record.
func TestRecordsHaveTheCipherSuite(t *testing.T) {
	c := &clientInfo{listener: &Listener{}}
	c.established(&ctls.ConnectionState{Version: ctls.VersionTLS13, CipherSuite: ctls.TLS_AES_256_GCM_SHA384, ServerName: "A.test"})
	if c.version != ctls.VersionTLS13 || c.cipher != ctls.TLS_AES_256_GCM_SHA384 || c.sni != "a.test" {
		t.Errorf("%x %x %s", c.version, c.cipher, c.sni)
	}
}
