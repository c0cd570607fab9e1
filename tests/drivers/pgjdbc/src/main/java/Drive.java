import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.postgresql.PGConnection;

/** pgjdbc: server-side statements from the fifth use on, batches, fetch sizes, metadata. */
public final class Drive {
    private static void ok(String what) {
        System.out.println("ok pgjdbc " + what);
    }

    private static void check(boolean fine, String what) {
        if (!fine) {
            throw new AssertionError(what);
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void fails(String state, Work work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            check(state.equals(error.getSQLState()), error.getSQLState() + " instead of " + state + ": " + error);
            return;
        }
        throw new AssertionError("no error " + state);
    }

    private static Connection connect(String... more) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        properties.setProperty("sslmode", "disable");
        properties.setProperty("gssEncMode", "disable");
        for (int i = 0; i < more.length; i += 2) {
            properties.setProperty(more[i], more[i + 1]);
        }
        return DriverManager.getConnection(url, properties);
    }

    private static long number(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getLong(1);
        }
    }

    private static void run(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            check(number(connection, "SELECT 1") == 1, "SELECT 1");
            check(connection.isValid(5), "isValid");
            ok("connect");
            fails("42703", () -> number(connection, "SELECT nonsense"));
            ok("error");
            transaction(connection);
            prepared(connection);
            batch(connection);
            copy(connection);
            cancel(connection);
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT repeat('x', 5000000)")) {
                rows.next();
                check(rows.getString(1).length() == 5_000_000, "5 MB");
            }
            ok("5 MB");
            pages(connection);
            run(connection, "DROP TABLE pgjdbc_t");
        }
        savepoints();
        threads();
    }

    private static void transaction(Connection connection) throws Exception {
        run(connection, "DROP TABLE IF EXISTS pgjdbc_t");
        run(connection, "CREATE TABLE pgjdbc_t (n int PRIMARY KEY, words text)");
        connection.setAutoCommit(false);
        run(connection, "INSERT INTO pgjdbc_t VALUES (1, 'kept')");
        connection.commit();
        run(connection, "INSERT INTO pgjdbc_t VALUES (2, 'lost')");
        fails("23505", () -> run(connection, "INSERT INTO pgjdbc_t VALUES (1, 'twice')"));
        fails("25P02", () -> run(connection, "SELECT 1"));
        connection.rollback();
        connection.setAutoCommit(true);
        check(number(connection, "SELECT count(*) FROM pgjdbc_t") == 1, "one row");
        ok("transaction");
    }

    private static void prepared(Connection connection) throws Exception {
        try (PreparedStatement plus = connection.prepareStatement("SELECT ?::int + 1 AS sum")) {
            check("sum".equals(plus.getMetaData().getColumnLabel(1)), "described");
            for (int n = 0; n < 200; n++) {
                plus.setInt(1, n);
                try (ResultSet rows = plus.executeQuery()) {
                    rows.next();
                    check(rows.getInt(1) == n + 1, "plus");
                }
            }
        }
        for (int n = 0; n < 300; n++) { // More than the driver's cache of 256.
            try (PreparedStatement plus = connection.prepareStatement("SELECT ?::int + " + n)) {
                for (int i = 0; i < 6; i++) {
                    plus.setInt(1, i);
                    try (ResultSet rows = plus.executeQuery()) {
                        rows.next();
                        check(rows.getInt(1) == n + i, "plus n");
                    }
                }
            }
        }
        ok("prepared statement 200 times");
    }

    private static void batch(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO pgjdbc_t VALUES (?, 'batch')")) {
            for (int n = 10; n < 1010; n++) {
                insert.setInt(1, n);
                insert.addBatch();
            }
            check(insert.executeBatch().length == 1000, "1000 in a batch");
            for (int n : new int[] {2000, 2001, 10, 2002}) {
                insert.setInt(1, n);
                insert.addBatch();
            }
            fails("23505", insert::executeBatch);
        }
        check(number(connection, "SELECT count(*) FROM pgjdbc_t WHERE n < 1010") == 1001, "1001 rows");
        ok("batch");
    }

    private static void copy(Connection connection) throws Exception {
        var copies = connection.unwrap(PGConnection.class).getCopyAPI();
        StringBuilder lines = new StringBuilder();
        for (int n = 3000; n < 4000; n++) {
            lines.append(n).append("\tcopied\n");
        }
        check(copies.copyIn("COPY pgjdbc_t FROM STDIN", new StringReader(lines.toString())) == 1000, "1000 rows in");
        StringWriter out = new StringWriter();
        check(copies.copyOut("COPY (SELECT * FROM pgjdbc_t WHERE n >= 3000) TO STDOUT", out) == 1000, "1000 rows out");
        fails("22P02", () -> copies.copyIn("COPY pgjdbc_t FROM STDIN", new StringReader("bad\tx\n" + "1\tx\n".repeat(10000))));
        check(number(connection, "SELECT 2") == 2, "after a failed copy");
        ok("copy");
    }

    private static void cancel(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            Thread canceller = new Thread(() -> {
                try {
                    Thread.sleep(500);
                    statement.cancel();
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
            canceller.start();
            long start = System.nanoTime();
            fails("57014", () -> statement.execute("SELECT pg_sleep(15)"));
            check(System.nanoTime() - start < 10_000_000_000L, "late");
            canceller.join();
        }
        check(number(connection, "SELECT 3") == 3, "after a cancel");
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.execute("SELECT pg_sleep(15)"));
        }
        ok("cancel");
    }

    private static void pages(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("SELECT generate_series(1, 1000)")) {
            statement.setFetchSize(70);
            long total = 0;
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    total += rows.getLong(1);
                }
            }
            check(total == 500_500, "pages");
        }
        connection.commit();
        connection.setAutoCommit(true);
        ok("a result in pages");
    }

    /** A savepoint before every statement, released by a simple query in the middle of the extended ones. */
    private static void savepoints() throws Exception {
        try (Connection connection = connect("autosave", "always")) {
            connection.setAutoCommit(false);
            for (int n = 0; n < 20; n++) {
                fails("42703", () -> number(connection, "SELECT nonsense"));
                check(number(connection, "SELECT " + n) == n, "the transaction goes on");
            }
            connection.commit();
        }
        ok("autosave");
    }

    private static void threads() throws Exception {
        List<Throwable> wrong = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 16; t++) {
            int who = t;
            Thread thread = new Thread(() -> {
                try (Connection connection = connect();
                        PreparedStatement times = connection.prepareStatement("SELECT ?::int * ?::int")) {
                    for (int n = 0; n < 50; n++) {
                        times.setInt(1, who);
                        times.setInt(2, n);
                        try (ResultSet rows = times.executeQuery()) {
                            rows.next();
                            check(rows.getInt(1) == who * n, "times");
                        }
                    }
                } catch (Throwable error) {
                    synchronized (wrong) {
                        wrong.add(error);
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        check(wrong.isEmpty(), wrong.toString());
        ok("16 connections");
    }
}
