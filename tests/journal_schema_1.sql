BEGIN TRANSACTION;
CREATE TABLE intents (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
        company_id TEXT NOT NULL, connection_id TEXT NOT NULL, data_type TEXT NOT NULL,
        method TEXT NOT NULL, payload_hash TEXT NOT NULL,
        natural_key TEXT, natural_value TEXT, record_id TEXT, reference TEXT,
        idempotency_key TEXT, timeout_minutes INTEGER, snapshot TEXT REFERENCES snapshots,
        state TEXT NOT NULL, attempts INTEGER NOT NULL, retry INTEGER NOT NULL,
        key TEXT UNIQUE, evidence TEXT, candidates TEXT NOT NULL, status TEXT,
        http_status INTEGER, error TEXT, decision TEXT, parent TEXT,
        checksum INTEGER NOT NULL
    );
INSERT INTO "intents" VALUES(1,'intent','company','books','invoices','POST','4b28a9a520131b06c679efc0b3eecfdec96d200cb7effed94177190d1810f5b8','n','text intent',NULL,'ref-intent',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','INTENT',0,0,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,2946789742);
INSERT INTO "intents" VALUES(2,'unsent','company','books','invoices','POST','63bf086c69a01c1631d3c144827fbeb958c66696c840c89d482d9c6eed070754','n','text unsent',NULL,'ref-unsent',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','NOT_SENT',1,1,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,130392377);
INSERT INTO "intents" VALUES(3,'throttled','company','books','invoices','POST','e1a8e1dc542386722c732aa992447e1874f567d4a903de1f351933e16ec636b3','n','text throttled',NULL,'ref-throttled',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','REJECTED',2,1,NULL,NULL,'',NULL,429,'slow down',NULL,NULL,3736452654);
INSERT INTO "intents" VALUES(4,'refused','company','books','invoices','POST','e3749931a3565eb75b27eac1ffa26efb4c6490ad7c8fd8ae734a0ae193258161','n','text refused',NULL,'ref-refused',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','REJECTED',1,0,NULL,NULL,'',NULL,400,NULL,NULL,NULL,853689042);
INSERT INTO "intents" VALUES(5,'sending','company','books','invoices','POST','2366680d85465f19231afdae59d138324079a3db21d0d41d1bc65ba1f5c26586','n','text sending',NULL,'ref-sending',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','SENDING',1,0,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,1068379707);
INSERT INTO "intents" VALUES(6,'absent','company','books','invoices','POST','fca1b5077fb105319a268653a0bc268d62e46fdd34f1c57b01c65282a4b06442','n','text absent',NULL,'ref-absent',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','ABSENT',1,0,NULL,NULL,'k9',NULL,NULL,NULL,NULL,NULL,3625286470);
INSERT INTO "intents" VALUES(7,'bound','company','books','invoices','POST','593b715823d900728e699415768a63eda3c10eab5a1b8578f7e9e8ba52042ab2','n','text bound',NULL,'ref-bound',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','DECIDED',1,0,'k-bound','caller','',NULL,NULL,NULL,'bind',NULL,2154539810);
INSERT INTO "intents" VALUES(8,'given-up','company','books','invoices','POST','9002f661ae76d2354c7f6189c2c1c27701ac4197134fdbce991750855e099a76','n','text given-up',NULL,'ref-given-up',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','DECIDED',1,0,NULL,NULL,'',NULL,NULL,NULL,'abandon',NULL,1658347366);
INSERT INTO "intents" VALUES(9,'acked','company','books','invoices','POST','0bc3264bac6543f0bae11ab33f121b6a7d55aa778b5f2d76ae3e5e357086619e','n','text acked',NULL,'ref-acked',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','ACKED',0,0,'k-acked','E3','',NULL,NULL,NULL,NULL,NULL,813272686);
INSERT INTO "intents" VALUES(10,'final','company','books','invoices','POST','e8cf8104c5622ff2859ad424296a8e2f0a63ab036e1ae85262e9db8ec73875b8','n','text final',NULL,'ref-final',NULL,NULL,'e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0','FINAL',0,0,'k-final','E3','','Success',NULL,NULL,NULL,NULL,3140764995);
CREATE TABLE payloads (
        number INTEGER PRIMARY KEY REFERENCES intents, payload BLOB NOT NULL
    );
INSERT INTO "payloads" VALUES(1,X'7B226E223A22696E74656E74227D');
INSERT INTO "payloads" VALUES(2,X'7B226E223A22756E73656E74227D');
INSERT INTO "payloads" VALUES(3,X'7B226E223A227468726F74746C6564227D');
INSERT INTO "payloads" VALUES(5,X'7B226E223A2273656E64696E67227D');
INSERT INTO "payloads" VALUES(6,X'7B226E223A22616273656E74227D');
INSERT INTO "payloads" VALUES(7,X'7B226E223A22626F756E64227D');
INSERT INTO "payloads" VALUES(8,X'7B226E223A22676976656E2D7570227D');
INSERT INTO "payloads" VALUES(9,X'7B226E223A2261636B6564227D');
CREATE TABLE snapshots (
        digest TEXT NOT NULL PRIMARY KEY, whole INTEGER NOT NULL, keys TEXT NOT NULL
    );
INSERT INTO "snapshots" VALUES('e2d2750d185676f937d698bd7a05bc7d193c97e612e1d9d9f6f539fe6b2af1e0',1,'k1
k2');
CREATE TABLE tally (
        commits INTEGER NOT NULL, intents INTEGER NOT NULL, payloads INTEGER NOT NULL
    );
INSERT INTO "tally" VALUES(1,10,8);
CREATE INDEX intents_by_reference ON intents (reference) WHERE reference IS NOT NULL;
CREATE UNIQUE INDEX a_reference_stands_for_one_intent ON intents (reference)
        WHERE reference IS NOT NULL AND decision IS NOT 'resend';
CREATE INDEX intents_by_snapshot ON intents (snapshot) WHERE snapshot IS NOT NULL;
CREATE TRIGGER intents_are_counted AFTER INSERT ON intents
        BEGIN UPDATE tally SET intents = intents + 1; END;
CREATE TRIGGER intents_stay BEFORE DELETE ON intents
        BEGIN SELECT RAISE(ABORT, 'an intent is never deleted'); END;
CREATE TRIGGER final_is_final BEFORE UPDATE ON intents
        WHEN OLD.state = 'FINAL'
            AND (NEW.state, NEW.key, NEW.status) IS NOT (OLD.state, OLD.key, OLD.status)
        BEGIN SELECT RAISE(ABORT, 'a final intent never changes'); END;
CREATE TRIGGER payloads_are_counted AFTER INSERT ON payloads
        BEGIN UPDATE tally SET payloads = payloads + 1; END;
CREATE TRIGGER what_is_settled_needs_no_payload AFTER UPDATE ON intents
        WHEN NEW.state = 'FINAL' OR (NEW.state IN ('NOT_SENT', 'REJECTED') AND NOT NEW.retry)
        BEGIN DELETE FROM payloads WHERE number = OLD.number; END;
CREATE TRIGGER payloads_that_go_are_counted AFTER DELETE ON payloads
        BEGIN UPDATE tally SET payloads = payloads - 1; END;
COMMIT;
PRAGMA application_id = 1886745448;
PRAGMA user_version = 1;
