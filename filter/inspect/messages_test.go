package inspect

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Messages of protocols, written for tests from their documents.

// Commands of SMB 2 (MS-SMB2 2.2.1) and of SMB 1 (MS-CIFS 2.2.2.1).
const (
	smb2Tree   = 3
	smb2Create = 5
	smb2Close  = 6
	smb2Read   = 8
	smb2Write  = 9

	smb1Close      = 0x04
	smb1Locking    = 0x24
	smb1ReadAndX   = 0x2e
	smb1WriteAndX  = 0x2f
	smb1Tree       = 0x75
	smb1CreateAndX = 0xa2
)

const (
	maxSMBFiles = 256    // that are open in a flow at a time
	nfsProgram  = 100003 // RFC 1813 2.1
)

func le16(n int) string    { return string(binary.LittleEndian.AppendUint16(nil, uint16(n))) }
func le32(n int) string    { return string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }
func le64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
func be32(n int) string    { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

// netbios puts a message into a frame.
func netbios(m string) string {
	return string([]byte{0, byte(len(m) >> 16), byte(len(m) >> 8), byte(len(m))}) + m
}

// smb2Message is a header of SMB 2 with the body behind it (MS-SMB2 2.2.1.2).
func smb2Message(command int, id uint64, reply bool, body string) string {
	flags := 0
	if reply {
		flags = 1
	}
	return "\xfeSMB" + le16(64) + le16(0) + le32(0) + le16(command) + le16(0) + le32(flags) + le32(0) + le64(id) + le32(0) + le32(1) + le64(1) + strings.Repeat("\x00", 16) + body
}

func utf16le(s string) (out string) {
	for _, u := range utf16.Encode([]rune(s)) {
		out += le16(int(u))
	}
	return out
}

func smbTree(path string) string {
	text := utf16le(path)
	return netbios(smb2Message(smb2Tree, 9, false, le16(9)+le16(0)+le16(72)+le16(len(text))+text))
}

func smbCreate(id uint64, name string) string {
	text := utf16le(name)
	return netbios(smb2Message(smb2Create, id, false, le16(57)+strings.Repeat("\x00", 42)+le16(64+56)+le16(len(text))+strings.Repeat("\x00", 8)+text))
}

func smbCreated(id uint64, file string) string {
	return netbios(smb2Message(smb2Create, id, true, le16(89)+strings.Repeat("\x00", 62)+file+strings.Repeat("\x00", 8)))
}

func smbWrite(file string, offset uint64, data string) string {
	return netbios(smb2Message(smb2Write, 20, false, le16(49)+le16(64+48)+le32(len(data))+le64(offset)+file+strings.Repeat("\x00", 16)+data))
}

func smbRead(id uint64, file string, offset uint64) string {
	return netbios(smb2Message(smb2Read, id, false, le16(49)+"\x00\x00"+le32(4096)+le64(offset)+file+strings.Repeat("\x00", 17)))
}

func smbReadReply(id uint64, data string) string {
	return netbios(smb2Message(smb2Read, id, true, le16(17)+"\x50\x00"+le32(len(data))+strings.Repeat("\x00", 8)+data))
}

func smbClosed(file string) string {
	return netbios(smb2Message(smb2Close, 21, false, le16(24)+strings.Repeat("\x00", 6)+file))
}

// smb1Message is a header of SMB 1 with words and bytes behind it (MS-CIFS 2.2.3).
func smb1Message(command byte, mid int, reply bool, words, data string) string {
	flags := byte(0)
	if reply {
		flags = 0x80
	}
	h := "\xffSMB" + string([]byte{command}) + le32(0) + string([]byte{flags}) + le16(0) + strings.Repeat("\x00", 12) + le16(1) + le16(7) + le16(1) + le16(mid)
	return netbios(h + string([]byte{byte(len(words) / 2)}) + words + le16(len(data)) + data)
}

const noAndX = "\xff\x00\x00\x00"

// A client of MQTT 3.1.1 with all fields of CONNECT, and a message.
const (
	mqttHello     = "\x10\x1b\x00\x04MQTT\x04\xc6\x00\x3c\x00\x01c\x00\x01w\x00\x01m\x00\x02us\x00\x02pw"
	mqttPublished = "\x30\x08\x00\x01thello"
)

const (
	sipRequest = "INVITE sip:b@example.test SIP/2.0\r\nVia: SIP/2.0/UDP h\r\nf: <sip:a@example.test>\r\nTo: <sip:b@example.test>\r\n" +
		"User-Agent: u\r\nContent-Type: application/sdp\r\nContent-Length: 4\r\n\r\nv=0\n"
	sipResponse = "SIP/2.0 180 Ringing\r\nv: SIP/2.0/UDP h\r\nl: 0\r\n\r\n"
)

func xdr(s string) string { return be32(len(s)) + s + strings.Repeat("\x00", -len(s)&3) }

// nfsCallOf is a call of NFS (RFC 5531 9) with credentials and verifier of kind AUTH_NONE.
func nfsCallOf(xid, version, procedure int, args string) string {
	return be32(xid) + be32(0) + be32(2) + be32(nfsProgram) + be32(version) + be32(procedure) + strings.Repeat("\x00", 16) + args
}

func nfsLookup(xid int, name string) string { return nfsCallOf(xid, 3, 3, xdr("folder")+xdr(name)) }

func nfsReply(xid int, results string) string {
	return be32(xid) + be32(1) + be32(0) + be32(0) + be32(0) + be32(0) + results
}

func nfsRecord(m string) string { return be32(1<<31|len(m)) + m }

// googleHelloOf is a CHLO of Google's QUIC 46.
func googleHelloOf(tags ...string) string {
	table, values := "", ""
	for i := 0; i < len(tags); i += 2 {
		values += tags[i+1]
		table += fmt.Sprintf("%-4s", tags[i]) + le32(len(values))
	}
	return "\xc3Q046\x50connecti\x00\x00\x00\x01" + strings.Repeat("h", 12) + "\xa0\x01\x00\x04CHLO" + le16(len(tags)/2) + le16(0) + strings.ReplaceAll(table, " ", "\x00") + values
}

// multipartRequest has two parts, the second of which is a file, and an epilogue.
var multipartRequest = func() string {
	body := "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nva\r\n--b\r\n" +
		"Content-Disposition: form-data; name=y; filename=\"evil.exe\"\r\n\r\ndata\r\n--b--\r\n----"
	return fmt.Sprintf("POST /up?a HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}()
