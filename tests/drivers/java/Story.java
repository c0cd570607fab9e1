import java.io.StringReader;
import java.io.StringWriter;
import java.security.MessageDigest;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** pgjdbc, which names a statement at its fifth execution (S_1, S_2) and has portals of limited rows. */
public final class Story {
    private static final boolean POOLED = System.getenv("THROUGH").equals("howdah");
    private static final String WRONG = "SELECT * FROM nowhere";
    private static final String KILL =
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
    private static final String SLEEPERS =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
    private static final String BIG =
            "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
    /** What PostgreSQL says the checksum of BIG is. */
    private static final String BIG_SUM =
            "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + BIG + ") big";
    private static final int MANY = 300;

    private interface Attempt {
        void run() throws Exception;
    }

    private interface Client {
        void run(int number, Connection connection) throws Exception;
    }

    private static void ok(String what) {
        System.out.println("ok pgjdbc: " + what);
    }

    private static void fail(String what, Object wanted, Object seen) {
        System.err.printf("FAILED pgjdbc: %s%n  expected: %s%n  seen:     %s%n", what, wanted, seen);
        if (seen instanceof Throwable trouble) {
            trouble.printStackTrace();
        }
        System.exit(1);
    }

    private static void expect(String what, Object wanted, Object seen) {
        if (!String.valueOf(wanted).equals(String.valueOf(seen))) {
            fail(what, wanted, seen);
        }
    }

    private static void mustFail(String what, String sqlstate, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (SQLException error) {
            if (sqlstate != null && !sqlstate.equals(error.getSQLState())) {
                fail(what, sqlstate, error);
            }
            return;
        }
        fail(what, sqlstate == null ? "an error" : sqlstate, "none");
    }

    private static Connection connect(String port, String database, String user, String more) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + port + "/" + database + "?connectTimeout=15&sslmode=" + System.getenv("PGSSLMODE") + more;
        return DriverManager.getConnection(url, user, System.getenv("PGPASSWORD"));
    }

    private static Connection connect(String more) throws SQLException {
        return connect(System.getenv("PGPORT"), System.getenv("PGDATABASE"), System.getenv("PGUSER"), more);
    }

    private static void run(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    private static String value(Connection connection, String sql, int... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                statement.setInt(i + 1, parameters[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    private static void firstSteps(Connection connection) throws Exception {
        expect("who and where", "app shop", value(connection, "SELECT current_user || ' ' || current_database()"));
        ok("connect");

        for (int i = 0; i < 7; i++) {
            mustFail("an unknown table", "42P01", () -> value(connection, WRONG));
            mustFail("a division by zero", "22012", () -> value(connection, "SELECT 1 / ?", 0));
            expect("the next answer", 2, value(connection, "SELECT 1 + ?", 1));
        }
        ok("an error and on");

        run(connection, "DROP TABLE IF EXISTS pgjdbc_story; CREATE TABLE pgjdbc_story (n int, text text)");
        connection.setAutoCommit(false);
        run(connection, "INSERT INTO pgjdbc_story VALUES (1, 'x')");
        connection.commit();
        run(connection, "INSERT INTO pgjdbc_story VALUES (2, 'x')");
        connection.rollback();
        run(connection, "INSERT INTO pgjdbc_story VALUES (3, 'x')");
        mustFail("an unknown table", "42P01", () -> run(connection, WRONG));
        mustFail("a failed transaction", "25P02", () -> run(connection, "SELECT 1"));
        connection.rollback();
        run(connection, "INSERT INTO pgjdbc_story VALUES (4, 'x')");
        Savepoint here = connection.setSavepoint();
        run(connection, "INSERT INTO pgjdbc_story VALUES (5, 'x')");
        mustFail("an unknown table", "42P01", () -> run(connection, WRONG));
        connection.rollback(here);
        connection.commit();
        connection.setAutoCommit(true);
        expect("what was committed", "{1,4}", value(connection, "SELECT array_agg(n) FROM pgjdbc_story"));
        ok("commit, rollback, savepoint");
    }

    /** Three clients at once, each with a connection of its own. */
    private static void atOnce(String more, Client work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(3);
        List<Callable<Void>> clients = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            int number = i;
            clients.add(() -> {
                try (Connection connection = connect(more)) {
                    work.run(number, connection);
                }
                return null;
            });
        }
        for (Future<Void> done : threads.invokeAll(clients)) {
            done.get();
        }
        threads.shutdown();
    }

    private static void prepared() throws Exception {
        Set<Integer> pids = ConcurrentHashMap.newKeySet();
        // At first extra_float_digits is SET, and each of them calls its statements S_1, S_2.
        atOnce("&prepareThreshold=5", (number, connection) -> {
            int base = number * 1_000_000;
            String sql = "SELECT " + base + " + ?, pg_backend_pid()";
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int i = 0; i < 1000; i++) {
                    boolean apart = i % 20 == 0;
                    connection.setAutoCommit(!apart);
                    statement.setInt(1, i);
                    try (ResultSet rows = statement.executeQuery()) {
                        rows.next();
                        expect("a prepared statement's answer", base + i, rows.getInt(1));
                        pids.add(rows.getInt(2));
                    }
                    if (apart) {
                        run(connection, "SELECT pg_sleep(0.002)");
                        connection.commit();
                    }
                }
            }
        });
        if (POOLED && pids.size() < 2) {
            fail("servers that served three clients", "two or three", pids);
        }
        ok("a prepared statement 1,000 times on three connections");

        // Its cache holds 256; what falls out is closed.
        atOnce("&prepareThreshold=1", (number, connection) -> {
            for (int turn = 0; turn < 2; turn++) {
                for (int i = 0; i < MANY; i++) {
                    String seen = value(connection, "SELECT " + i + " + ? AS of_" + number, turn);
                    expect("one of many", i + turn, seen);
                }
            }
        });
        ok(MANY + " prepared statements, twice around");

        for (String mode : List.of("simple", "extendedForPrepared", "extendedCacheEverything")) {
            atOnce("&preferQueryMode=" + mode, (number, connection) -> {
                for (int i = 0; i < 50; i++) {
                    expect("an answer in mode " + mode, number * 1000 + i, value(connection, "SELECT " + number * 1000 + " + ?", i));
                }
            });
        }
        ok("its other modes");
    }

    private static void batch(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO pgjdbc_story VALUES (10 / ?, 'batch')")) {
            for (int i = 1; i <= 1000; i++) {
                insert.setInt(1, i);
                insert.addBatch();
            }
            expect("rows of a batch", 1000, Arrays.stream(insert.executeBatch()).sum());
            for (int i : new int[] {1, 0, 2}) {
                insert.setInt(1, i);
                insert.addBatch();
            }
            try {
                insert.executeBatch();
                fail("a batch with an error", "22012", "none");
            } catch (BatchUpdateException error) {
                expect("a batch with an error", "22012", error.getSQLState());
            }
        }
        try (Statement several = connection.createStatement()) {
            several.addBatch("INSERT INTO pgjdbc_story VALUES (1, 'several')");
            several.addBatch("UPDATE pgjdbc_story SET text = 'many' WHERE text = 'several'");
            expect("rows of a batch", "[1, 1]", Arrays.toString(several.executeBatch()));
        }
        try (Connection rewriting = connect("&reWriteBatchedInserts=true");
                PreparedStatement insert = rewriting.prepareStatement("INSERT INTO pgjdbc_story VALUES (?, 'batch')")) {
            for (int i = 1; i <= 1000; i++) {
                insert.setInt(1, i);
                insert.addBatch();
            }
            insert.executeBatch();
        }
        expect("rows by batches", 2000, value(connection, "SELECT count(*) FROM pgjdbc_story WHERE text = 'batch'"));
        ok("batch");
    }

    private static void copy(Connection connection) throws Exception {
        run(connection, "TRUNCATE pgjdbc_story");
        String text = IntStream.range(0, 20000).mapToObj(i -> i + "\trow " + i + "\n").collect(Collectors.joining());
        CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
        expect("rows by COPY", 20000, copies.copyIn("COPY pgjdbc_story FROM STDIN", new StringReader(text)));
        StringWriter out = new StringWriter();
        copies.copyOut("COPY (SELECT * FROM pgjdbc_story ORDER BY n) TO STDOUT", out);
        expect("what COPY gave back", true, out.toString().equals(text));
        mustFail("COPY of what is no number", "22P02",
                () -> copies.copyIn("COPY pgjdbc_story FROM STDIN", new StringReader("no number\tx\n")));
        // The server's error is what it wants to hear, so it throws nothing.
        copies.copyIn("COPY pgjdbc_story FROM STDIN").cancelCopy();
        expect("rows after failed COPYs", 20000, value(connection, "SELECT count(*) FROM pgjdbc_story"));
        ok("COPY in and out");
    }

    private static void cancel(Connection connection, Connection direct) throws Exception {
        for (boolean bySecondThread : new boolean[] {true, false}) {
            long began = System.nanoTime();
            try (Statement sleep = connection.createStatement()) {
                Thread striker = new Thread(() -> {
                    try {
                        while (value(direct, SLEEPERS).equals("0") && System.nanoTime() - began < 10e9) {
                            Thread.sleep(50);
                        }
                        sleep.cancel();
                    } catch (Exception error) {
                        fail("the cancel", "success", error);
                    }
                });
                if (bySecondThread) {
                    striker.start();
                } else {
                    sleep.setQueryTimeout(1);
                }
                mustFail("a cancelled statement", "57014", () -> sleep.execute("SELECT pg_sleep(30)"));
                striker.join();
            }
            if (System.nanoTime() - began > 15e9) {
                fail("nanoseconds until the cancel", "few", System.nanoTime() - began);
            }
            expect("the next answer", 3, value(connection, "SELECT ? + 0", 3));
        }
        ok("cancel");
    }

    private static String checksum(Statement statement, String sql) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("MD5");
        try (ResultSet rows = statement.executeQuery(sql)) {
            while (rows.next()) {
                sum.update((rows.getInt(1) + rows.getString(2)).getBytes());
            }
        }
        return HexFormat.of().formatHex(sum.digest());
    }

    private static void large(Connection connection, String wanted) throws Exception {
        try (Statement statement = connection.createStatement()) {
            expect("the checksum of 50 MB", wanted, checksum(statement, BIG));
            connection.setAutoCommit(false);
            statement.setFetchSize(1000);
            expect("the checksum by a thousand rows at a time", wanted, checksum(statement, BIG));
            connection.commit();
            connection.setAutoCommit(true);
        }
        ok("a large result");
    }

    private static void reconnect(Connection idle, Connection direct) throws Exception {
        value(idle, "SELECT 1");
        Connection connection = connect("");
        connection.setAutoCommit(false);
        value(connection, "SELECT 1");
        value(direct, KILL);
        mustFail("a query on a dead server", null, () -> value(connection, "SELECT 2"));
        // A pooler may learn of a server's death only by using it.
        for (long began = System.nanoTime(); ; Thread.sleep(100)) {
            try (Connection fresh = connect("")) {
                expect("a new connection's answer", 42, value(fresh, "SELECT 42"));
                break;
            } catch (SQLException error) {
                if (System.nanoTime() - began > 5e9) {
                    fail("reconnect", "success within some seconds", error);
                }
            }
        }
        if (POOLED) {
            expect("the answer on a client that was idle", 43, value(idle, "SELECT ? + 0", 43));
        }
        ok("reconnect after the servers were killed");
    }

    private static void console() throws Exception {
        String user = System.getenv("CONSOLE_USER");
        for (String more : List.of("", "&prepareThreshold=1", "&preferQueryMode=simple")) {
            try (Connection connection = connect(System.getenv("PGPORT"), "pgbouncer", user, more)) {
                for (int i = 0; i < 7; i++) {
                    List<String> modes = new ArrayList<>();
                    try (PreparedStatement show = connection.prepareStatement("SHOW POOLS"); ResultSet pools = show.executeQuery()) {
                        while (pools.next()) {
                            if (pools.getString("database").equals("shop")) {
                                modes.add(pools.getString("pool_mode"));
                                pools.getInt("cl_active");
                            }
                        }
                    }
                    expect("pool_mode in SHOW POOLS" + more, "[transaction]", modes);
                }
                mustFail("an unknown view", null, () -> value(connection, "SHOW NONSENSE"));
                value(connection, "SHOW VERSION");
            }
        }
        ok("the console");
    }

    public static void main(String[] arguments) throws Exception {
        try {
            Connection direct = connect(System.getenv("DIRECT_PORT"), "postgres", System.getenv("PGUSER"), "");
            Connection connection = connect("");
            firstSteps(connection);
            prepared();
            batch(connection);
            copy(connection);
            cancel(connection, direct);
            large(connection, value(direct, BIG_SUM));
            reconnect(connection, direct);
            if (POOLED) {
                console();
            }
        } catch (Exception error) {
            fail("the story", "no surprise", error);
        }
    }
}
