package appid

// Databases, queues and file systems.

// mySQL is the greeting of a server: packet length, number 0, protocol 10 and a version (Protocol::HandshakeV10).
func mySQL(v *view) verdict {
	return is(v.nth == 0 && v.reply && v.le16(0) == len(v.p)-4 && v.u8(2) == 0 && v.u8(3) == 0 && (v.u8(4) == 10 ||
		v.u8(4) == 255) &&
		(v.u8(4) == 255 || v.digits(5) > 0 && v.contains(".")) || !v.reply && v.nth == 0 && v.other.size > 5 &&
		v.other.head[4] == 10 && v.u8(3) == 1 && v.le16(0) == len(v.p)-4)
}

// postgreSQL is a startup, an SSLRequest, a cancel request, or the answers to them.
func postgreSQL(v *view) verdict {
	if !v.reply && v.nth == 0 {
		switch v.u32(4) {
		case 80877103, 80877104: // SSLRequest, GSSENCRequest
			return is(v.u32(0) == 8 && len(v.p) == 8)
		case 80877102:
			return is(v.u32(0) == 16)
		case 0x30000, 0x30002:
			return is(int(v.u32(0)) == len(v.p) && v.contains("user\x00"))
		}
		return no
	}
	return is(v.reply && v.nth == 0 && v.p[0] == 'R' && v.u32(1) >= 8 && v.u32(1) < 200 && v.u32(5) <= 12)
}

func mongoDB(v *view) verdict {
	code := v.le32(12)
	if len(v.p) < 16 || v.le32(0) < 16 || v.le32(0) > 48<<20 {
		return no
	}
	if code == 1 && (!v.reply || len(v.p) < 36) || code == 2013 && (v.u8(20) > 2 || v.le32(21) < 5) {
		return no
	}
	return is((code == 1 || code >= 2001 && code <= 2007 || code == 2010 || code == 2011 || code == 2012 || code == 2013) &&
		(int(v.le32(0)) == len(v.p) || len(v.p) > 1000) && (code == 1 || code == 2012 || v.le32(8) == 0 || v.reply))
}

// redis is RESP: an array of bulk strings, or a reply after one.
func redis(v *view) verdict {
	switch v.p[0] {
	case '*':
		n := v.digits(1)
		return is(n > 0 && n < 7 && v.hasAt(1+n, "\r\n$"))
	case '+', '-', ':', '$':
		return perhaps(v.other.size > 3 && v.other.head[0] == '*')
	}
	return no
}

func memcached(v *view) verdict {
	switch {
	case v.hasAny("get ", "gets ", "set ", "add ", "stats\r\n", "version\r\n", "incr ", "delete ", "touch "):
		line, whole := v.line()
		return perhaps(whole && len(line) < 300 && !v.contains("HTTP/1.") && (v.port(11211) || v.nth > 0))
	case v.hasAny("VALUE ", "STORED\r\n", "STAT ", "END\r\n", "VERSION "):
		return perhaps(v.reply && (v.port(11211) || v.other.is("get ") || v.other.is("set ") || v.other.is("stats")))
	case v.u8(0) == 0x80 || v.u8(0) == 0x81: // the binary protocol
		return is(v.u8(1) < 0x40 && len(v.p) >= 24 && int(v.u32(8)) == len(v.p)-24 && v.u8(5) == 0 && v.port(11211))
	}
	return maybe
}

// tns is a connect, accept or redirect of Oracle's Net. Where the data of a connect are long, they follow it.
func tns(v *view) verdict {
	return is(v.nth == 0 && v.u16(0) == len(v.p) && v.u16(2) == 0 && v.u8(4) >= 1 && v.u8(4) <= 11 && v.u8(5) <= 8 &&
		v.u16(6) == 0 &&
		(v.u8(4) == 1 && (v.contains("(CONNECT_DATA=") || v.u16(8) >= 300 && v.u16(8) < 400 && v.u16(24) > 0 &&
			v.u16(26) == v.u16(0)) || v.u8(4) == 11 && v.port(1521) || v.u8(4) == 2 && v.port(1521)))
}

func drda(v *view) verdict {
	return is(len(v.p) >= 10 && v.p[2] == 0xd0 && v.u16(0) <= len(v.p) && v.u16(6) == v.u16(0)-6 && v.u16(4) > 0 &&
		v.u8(3)&0xf <= 5)
}

// cassandra is a frame of the native protocol: STARTUP or OPTIONS, and the answers.
func cassandra(v *view) verdict {
	version := v.u8(0) & 0x7f
	if version < 3 || version > 5 || len(v.p) < 9 || int(v.u32(5)) != len(v.p)-9 {
		return no
	}
	opcode := v.u8(4)
	return is(v.p[0] < 0x80 && (opcode == 1 && v.contains("CQL_VERSION") || opcode == 5) && v.u8(1) < 32 ||
		v.p[0] >= 0x80 && (opcode == 6 && v.contains("CQL_VERSION") || v.port(9042)))
}

func kafka(v *view) verdict {
	// A request: size, API key, version, correlation, client ID.
	n := v.u16(12)
	return perhaps(!v.reply && int(v.u32(0)) == len(v.p)-4 && v.u16(4) <= 90 && v.u16(6) <= 20 && len(v.p) >= 14+n &&
		n > 0 && n < 256 && v.textAt(14, n) &&
		(v.port(9092, 9093) || v.u16(4) == 18 || v.u16(4) == 3))
}

func zooKeeper(v *view) verdict {
	// ConnectRequest: version, last transaction, time-out, session, a password of 16 bytes, and whether to read only. The
	// answer has the version, the time-out, the session and the password.
	size, password := int(v.u32(0)), 28
	if v.reply {
		size, password = size+8, 20
	}
	return is(v.nth == 0 && (size == 44 || size == 45) && v.u32(4) == 0 && int(v.u32(0)) == len(v.p)-4 &&
		v.u32(password) == 16)
}

func stomp(v *view) verdict {
	return is(v.hasAny("CONNECT\naccept-version:", "STOMP\n", "CONNECTED\nversion:", "CONNECTED\nserver:",
		"CONNECT\nlogin:") || v.has("CONNECT\n") && v.contains("\nhost:"))
}

func nats(v *view) verdict {
	return perhaps(v.has("INFO {") && v.contains(`"server_id"`) || v.has("CONNECT {") && v.contains(`"verbose"`))
}

func gearman(v *view) verdict {
	return is((v.has("\x00REQ") || v.has("\x00RES")) && v.u32(4) > 0 && v.u32(4) < 64)
}

func ceph(v *view) verdict { return is(v.has("ceph v")) }

func zabbix(v *view) verdict { return is(v.has("ZBXD") && v.u8(4) < 8) }

// smb is a message of version 1 or 2, after the length of the direct transport (MS-SMB2, 2.1) or that of NetBIOS sessions.
func smb(v *view) verdict {
	if len(v.p) == 4 && v.u8(0) == 0 && v.port(139, 445) {
		return maybe
	}
	if v.hasAt(0, "\xffSMB") || v.hasAt(0, "\xfeSMB") {
		return perhaps(v.nth > 0)
	}
	return is(v.u8(0) == 0 && (v.hasAt(4, "\xffSMB") || v.hasAt(4, "\xfeSMB") || v.hasAt(4, "\xfdSMB") || v.hasAt(4,
		"\xfcSMB")))
}

// sunRPC is a call or reply (RFC 5531, 9). at is 4 over TCP, behind the record mark.
func sunRPC(v *view, at int) (program uint32, reply, ok bool) {
	switch v.u32(at + 4) {
	case 0:
		program = v.u32(at + 12)
		return program, false, len(v.p) >= at+40 && v.u32(at+8) == 2 && program >= 100000 && program < 0x60000000 &&
			v.u32(at+16) < 16 && v.u32(at+20) < 64
	case 1:
		return 0, true, len(v.p) >= at+24 && v.u32(at+8) <= 1 && v.u32(at+12) <= 6 && v.u32(at+16) <= 400
	}
	return 0, false, false
}

// nfsProgram is a program that serves files: NFS itself, mounting, locking, or the map of ports.
func nfsProgram(p uint32) bool {
	return p == 100000 || p == 100003 || p == 100005 || p == 100021 || p == 100024 || p == 100227
}

func nfs(v *view) verdict {
	p, reply, ok := sunRPC(v, 0)
	return is(ok && (nfsProgram(p) || reply && v.port(2049, 111) && (v.other.size == 0 || v.other.u16(0) == v.u16(0))))
}

func nfsTCP(v *view) verdict {
	p, reply, ok := sunRPC(v, 4)
	return is(ok && v.u8(0)&0x7f == 0 && (nfsProgram(p) || reply && v.port(2049, 111)))
}

func rpc(v *view) verdict {
	p, _, ok := sunRPC(v, 0)
	return is(ok && p != 0 && !nfsProgram(p))
}

func afp(v *view) verdict {
	// DSI: flags, command, request, offset or error, length, 0
	return is(v.nth == 0 && len(v.p) >= 16 && v.u8(0) <= 1 && (v.u8(1) == 3 || v.u8(1) == 4 || v.u8(1) == 2 &&
		v.port(548)) && v.u32(12) == 0 && int(v.u32(8)) == len(v.p)-16 && (v.u8(0) == 1 || v.u32(4) == 0))
}

func rsync(v *view) verdict { return is(v.has("@RSYNCD: ")) }

func iscsi(v *view) verdict {
	return is(v.nth == 0 && v.u8(0) == 0x43 && len(v.p) >= 48 && v.contains("InitiatorName=") || v.u8(0) == 0x23 &&
		len(v.p) >= 48 && v.contains("TargetPortalGroupTag="))
}

func svn(v *view) verdict { return is(v.has("( success ( 2 2 ") || v.has("( 2 ( edit-pipeline")) }

func git(v *view) verdict {
	at := 4 // behind the length, which Git itself sends in a segment of its own
	switch {
	case v.nth == 0 && len(v.p) == 4 && v.digits(0) >= 2:
		return maybe
	case v.nth == 1 && v.mine.size == 4:
		at = 0
	}
	return is(v.hasAt(at, "git-upload-pack /") || v.hasAt(at, "git-receive-pack /"))
}

func opcUA(v *view) verdict {
	return is(v.hasAny("HELF", "ACKF", "ERRF", "OPNF", "MSGF", "RHEF") && int(v.le32(4)) <= 1<<20 && v.le32(4) >= 8)
}
