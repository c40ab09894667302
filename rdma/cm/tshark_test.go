package cm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/rdma/roce"
)

// tsharkFields lists, for each kind that Wireshark dissects, the fields that are compared, and what it shows for exemplar.
var tsharkFields = map[Kind][][2]string{
	REQ: {
		{"req", "0xa1a2a3a4"},
		{"req.serviceid.dport", "0x1c06"},
		{"req.localcaguid", "0x0123456789abcdef"},
		{"req.localqkey", "0x00000077"},
		{"req.localqpn", "0x123456"},
		{"req.responderres", "0x05"},
		{"req.initdepth", "0x06"},
		{"req.remoteresptout", "0x14"},
		{"req.transpsvctype", "0x01"},
		{"req.e2eflowctrl", "0x01"},
		{"req.startpsn", "0xfffff0"},
		{"req.localresptout", "0x15"},
		{"req.retrcount", "0x03"},
		{"req.pkey", "0xffff"},
		{"req.pppmtu", "0x03"},
		{"req.rdcexist", "0x00"},
		{"req.rnrretrcount", "0x07"},
		{"req.maxcmretr", "0x0f"},
		{"req.srq", "0x01"},
		{"req.ext_transport", "0x02"},
		{"req.prim_locallid", "1"},
		{"req.prim_remotelid", "2"},
		{"req.prim_localgid_ipv4", "198.18.0.1"},
		{"req.prim_remotegid_ipv4", "198.18.0.2"},
		{"req.prim_tfcclass", "0x68"},
		{"req.prim_hoplim", "0x40"},
		{"req.prim_sl", "0x09"},
		{"req.prim_subnetlocal", "0x01"},
		{"req.prim_localacktout", "0x13"},
		{"req.ip_cm.ipv", "0x04"},
		{"req.ip_cm.sport", "0x9c40"},
		{"req.ip_cm.sip4", "198.18.0.1"},
		{"req.ip_cm.dip4", "198.18.0.2"},
	},
	REP: {
		{"rep", "0xa1a2a3a4"},
		{"rep.remotecommid", "0xb1b2b3b4"},
		{"rep.localqkey", "0x00000077"},
		{"rep.localqpn", "0x123456"},
		{"rep.startpsn", "0xfffff0"},
		{"rep.respres", "0x05"},
		{"rep.initdepth", "0x06"},
		{"rep.tgtackdelay", "0x0f"},
		{"rep.failoveracc", "0x02"},
		{"rep.e2eflowctrl", "0x01"},
		{"rep.rnrretrcount", "0x06"},
		{"rep.srq", "0x01"},
		{"rep.localcaguid", "0x0123456789abcdef"},
	},
	REJ: {
		{"rej.localcommid", "0xa1a2a3a4"}, {"rej.remotecommid", "0xb1b2b3b4"}, {"rej.msgrej", "0x02"}, {"rej.rejinfolen", "0x03"}, {"rej.reason", "0x001c"},
	},
	RTU:  {{"rtu.localcommid", "0xa1a2a3a4"}, {"rtu.remotecommid", "0xb1b2b3b4"}},
	DREQ: {{"dreq.localcommid", "0xa1a2a3a4"}, {"dreq.remotecommid", "0xb1b2b3b4"}, {"req.remoteqpneecn", "0x123456"}},
	DREP: {{"drsp.localcommid", "0xa1a2a3a4"}, {"drsp.remotecommid", "0xb1b2b3b4"}},
}

// TestTsharkReadsMessages has Wireshark's dissector read the datagram of each kind and compares every field but flow label and rate,
// which it reads at other bits than Linux. It knows no MRA and no SIDR.
func TestTsharkReadsMessages(t *testing.T) {
	testnet.Program(t, "tshark")
	path := filepath.Join(t.TempDir(), "cm.pcap")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	kinds := []Kind{REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDRREQ, SIDRREP}
	for i, k := range kinds {
		m := exemplar(k)
		if k == REQ {
			m.Private = (&IPHeader{Src: addrA, Dst: addrB, SrcPort: 40000}).Append(nil)
		}
		e := roce.Envelope{Src: addrA, Dst: addrB, SrcPort: 50000, TTL: 64}
		p := roce.Packet{Opcode: roce.SendOnly.Of(roce.UD), PKey: 0xffff, DestQP: QPN, SrcQP: QPN, QKey: QKey, PSN: uint32(i)}
		b := make([]byte, roce.Overhead+MADLen)
		b = b[:roce.Build(b, &e, &p, m.Append(nil))]
		if err := w.Write(&capture.Record{Time: int64(i), Len: len(b), Data: b}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	common := []string{"mad.mgmtclass", "mad.transactionid", "bth.destqp"}
	args := []string{"-r", path, "-T", "fields", "-E", "separator=;", "-E", "occurrence=f", "-e", "_ws.malformed"}
	for _, f := range common {
		args = append(args, "-e", "infiniband."+f)
	}
	for _, k := range kinds {
		for _, f := range tsharkFields[k] {
			args = append(args, "-e", "infiniband.cm."+f[0])
		}
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(kinds) {
		t.Fatalf("%d lines:\n%s", len(lines), out)
	}
	for i, k := range kinds { // all columns of other kinds are empty
		want := ";0x07;0x1122334455667788;0x000001"
		for _, other := range kinds {
			for _, f := range tsharkFields[other] {
				if want += ";"; other == k {
					want += f[1]
				}
			}
		}
		if lines[i] != want {
			t.Errorf("%v:\n%s, want\n%s", k, lines[i], want)
		}
	}
}
