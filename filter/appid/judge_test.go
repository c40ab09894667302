package appid

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// same are the judge's names that mean one of our protocols. Others are compared in lower case without punctuation.
var same = map[string][]Protocol{
	"IP_PIM": {PIM}, "PTPv2": {PTP}, "FTP_CONTROL": {FTP}, "FTPS": {FTP}, "POPS": {POP3}, "IMAPS": {TLS, IMAP},
	"Jabber": {XMPP}, "TINC": {Tinc},
	"Service_Location_Protocol": {SLP}, "EthernetGlobalData": {EGD}, "IEEE-C37118": {Synchrophasor},
	"ANSI_C1222": {C1222}, "CiscoSkinny": {Skinny},
	"Controller_Area_Network": {CAN}, "HP_VIRTGRP": {HPVirtual}, "TPLINK_SHP": {TPLink}, "UBNTAC2": {Ubiquiti},
	"WSD":         {WSDiscovery},
	"MerakiCloud": {Meraki}, "SteamDatagramRelay": {SteamDatagram}, "LineCall": {LINE}, "LoLWildRift": {WildRift},
	"CoD_Mobile":   {CoDMobile},
	"TencentGames": {Tencent}, "NetEaseGames": {NetEase}, "GaijinEntertainment": {Gaijin}, "HalfLife2": {HalfLife},
	"TES_Online": {ElderScrolls},
	"KNXnet_IP":  {KNX}, "EthernetIP": {EtherNetIP}, "Mining": {Stratum}, "HTTP_Connect": {HTTPConnect},
	"IPSec": {IPsec}, "SRTP": {STUN, RTP},
	"S7CommPlus": {S7Plus}, "TocaBoca": {Photon}, "CNP-IP": {CNPIP},
	"MapleStory": {HTTP}, "SMBv1": {SMB},
	"SOAP": {SOAP, HTTP}, "i3D": {Discord},
	"HAProxy": {ProxyProtocol}, "ApacheThrift": {Thrift}, "Apache_Thrift": {Thrift}, "Corba": {GIOP}, "JRMI": {RMI}, "ISO9506-1-MMS": {MMS},
	"BeckhoffADS": {ADS}, "MELSEC": {SLMP}, "TUYA_LP": {Tuya}, "RX": {RX}, "Z3950": {Z3950}, "IceCast": {Icecast}, "ActiveMQ": {OpenWire},
}

func agrees(name string, p Protocol) bool {
	if list, ok := same[name]; ok {
		return slices.Contains(list, p)
	}
	plain := strings.NewReplacer("-", "", "_", "", "/", "", ".", "")
	return strings.EqualFold(plain.Replace(name), plain.Replace(p.String()))
}

// TestAgreesWithAnotherClassifier compares each flow that the judge recognised by its content.
func TestAgreesWithAnotherClassifier(t *testing.T) {
	type score struct{ right, all int }
	scores := map[string]*score{}
	var names, prints score
	var total, right, wrong, extra int
	var misses, extras []string
	for _, e := range corpus(t) {
		expected := map[flowID]expectation{}
		for _, x := range expectations(t, e) {
			expected[x.id] = x
		}
		flows := map[flowID]*Flow{}
		var order []flowID
		each(t, filepath.Join(filepath.Dir(filepath.Dir(e)), strings.TrimSuffix(filepath.Base(e), ".out")),
			func(id flowID, p *Packet) {
				f := flows[id]
				if f == nil {
					if f = flows[id.reversed()]; f != nil {
						p.Reply = true
					} else {
						f = &Flow{}
						flows[id] = f
						order = append(order, id)
					}
				}
				f.Packet(p)
			})
		for _, id := range order {
			x, found := expected[id]
			if !found {
				x, found = expected[id.reversed()]
			}
			got := flows[id].Protocol()
			switch {
			case !found:
				if got != Unknown {
					extras = append(extras, fmt.Sprintf("%s %v: %v, no flow of the judge", filepath.Base(e), id, got))
				}
				continue
			case !strings.HasPrefix(x.confidence, "DPI"):
				if got != Unknown && !agrees(x.name, got) {
					extra++
					extras = append(extras, fmt.Sprintf("%s %v: %v, judge %s.%s by %s", filepath.Base(e), id, got,
						x.name, x.sub, x.confidence))
				}
				continue
			}
			s := scores[x.name]
			if s == nil {
				s = &score{}
				scores[x.name] = s
			}
			s.all++
			total++
			if d := flows[id].Details(); agrees(x.name, got) && (got == TLS || got == QUIC) {
				if x.sni != "" {
					names.all++
					if strings.EqualFold(x.sni, d.Name) {
						names.right++
					} else {
						misses = append(misses, fmt.Sprintf("%s %v: name %q, judge %q", filepath.Base(e), id, d.Name, x.sni))
					}
				}
				if ja4 := field(x.line, "JA4: "); ja4 != "" {
					prints.all++
					if ja4 == d.JA4 {
						prints.right++
					} else {
						misses = append(misses, fmt.Sprintf("%s %v: JA4 %q, judge %q", filepath.Base(e), id, d.JA4, ja4))
					}
				}
			}
			if agrees(x.name, got) {
				s.right++
				right++
				continue
			}
			if got != Unknown {
				wrong++
			}
			misses = append(misses, fmt.Sprintf("%s %v: %v, judge %s.%s (%s)", filepath.Base(e), id, got, x.name,
				x.sub, x.confidence))
		}
	}
	var mean float64
	protocols := []string{}
	for n, s := range scores {
		mean += float64(s.right) / float64(s.all)
		protocols = append(protocols, n)
	}
	mean /= float64(len(scores))
	slices.SortFunc(protocols, func(a, b string) int {
		return cmp.Compare(scores[a].all-scores[a].right, scores[b].all-scores[b].right)
	})
	for _, n := range protocols {
		if s := scores[n]; s.right < s.all {
			t.Logf("%-30s %d of %d", n, s.right, s.all)
		}
	}
	t.Logf("%d of %d flows (%.1f %%), %d protocols on average %.1f %%, %d recognised as another, %d where the judge guesses or knows nothing",
		right, total, 100*float64(right)/float64(total), len(scores), 100*mean, wrong, extra)
	t.Logf("%d of %d server names, %d of %d JA4", names.right, names.all, prints.right, prints.all)
	if 100*right < 90*total || mean < 0.80 || 100*wrong > 3*(right+wrong) || extra > 320 || 100*names.right < 95*names.all {
		t.Error("fewer than 90 % of flows, 80 % over protocols, 97 % of what is recognised or 95 % of server names, or more than 320 flows that the other one does not know")
	}
	for _, m := range misses {
		t.Log("MISS ", m)
	}
	for _, m := range extras {
		t.Log("EXTRA ", m)
	}
}
